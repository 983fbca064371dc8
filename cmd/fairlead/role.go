package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"fairlead.dev/internal/near"
)

// role is the value of a flag that takes the role of a machine, in any case: a Machine's spec.role begins with a capital.
type role string

// roleType stands in help for the value of such a flag.
const roleType = "role"

// roleVar adds such a flag, for an edge where it is not given.
func roleVar(flags *pflag.FlagSet, to *string, usage string) {
	*to = roleEdge
	flags.Var((*role)(to), "role", usage)
}

// String is the role in lower case.
func (r *role) String() string { return string(*r) }

// Set takes edge or backend.
func (r *role) Set(text string) error {
	switch lower := strings.ToLower(text); lower {
	case roleEdge, roleBackend:
		*r = role(lower)
		return nil
	}
	return fmt.Errorf("want %s or %s%s", roleEdge, roleBackend, near.DidYouMean(text, []string{roleEdge, roleBackend}))
}

// Type says what kind of value it is.
func (r *role) Type() string { return roleType }

// className is the value of a flag that takes the class of IngressRoutes.
type className string

// classType stands in help for the value of such a flag.
const classType = "class"

// String is the class.
func (n *className) String() string { return string(*n) }

// Set takes any class. None is no way to serve IngressRoutes without one alone, nor those of every class.
func (n *className) Set(text string) error {
	if text == "" {
		return errors.New("want the name of a class, such as contour; IngressRoutes without a class are served in any case")
	}
	*n = className(text)
	return nil
}

// Type says what kind of value it is.
func (n *className) Type() string { return classType }
