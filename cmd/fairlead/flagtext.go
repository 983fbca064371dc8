package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// flagValue says in plain words what a flag wants instead of a value that it cannot take. Words
// of Go's parsers are not for those who typed it; other reasons are ours, and stay.
func flagValue(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	want := ""
	switch kind := invalid.GetFlag().Value.Type(); {
	case kind == cidrs, kind == roleCIDRs, kind == roleType, kind == classType:
		return fmt.Errorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), errors.Unwrap(invalid))
	case kind == "duration":
		want = "a duration such as 500ms, 10s or 5m"
	case kind == "bool":
		want = "true or false"
	case strings.HasPrefix(kind, "uint"):
		want = "a whole number from 0"
		if bits, err := strconv.Atoi(strings.TrimPrefix(kind, "uint")); err == nil {
			want += fmt.Sprintf(" to %d", uint64(math.MaxUint64)>>(64-bits))
		}
	case strings.HasPrefix(kind, "int"):
		want = "a whole number"
	case strings.HasPrefix(kind, "float"):
		want = "a number"
	default:
		return err
	}
	return fmt.Errorf("--%s %q: want %s", invalid.GetFlag().Name, invalid.GetValue(), want)
}

// helpWidth is how wide help is where no terminal says it.
const helpWidth = 110

// wrapHelp has the help of all commands break the descriptions of flags at the terminal's width.
func wrapHelp(root *cobra.Command) {
	cobra.AddTemplateFunc("wrapped", func(flags *pflag.FlagSet) string {
		width, _, _ := term.GetSize(int(os.Stdout.Fd())) //nolint:gosec // descriptors are small
		return flags.FlagUsagesWrapped(max(cmp.Or(width, helpWidth), 60))
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages", "Flags | wrapped"))
}
