// Command check finds programs for tools/setup.sh as labs do: it succeeds if all that its
// arguments name are there and are the right ones, and says what is wrong with the others.
// Of a program that package program does not know it asks no more than the name.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"

	"fairlead.dev/lab/program"
)

func main() {
	status := 0
	for _, name := range os.Args[1:] {
		if err := find(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			status = 1
		}
	}
	os.Exit(status)
}

func find(name string) error {
	known := program.Known()
	i := slices.IndexFunc(known, func(p program.Program) bool { return p.Name == name })
	if i < 0 {
		_, err := exec.LookPath(name)
		return err
	}
	_, err := known[i].Find()
	return err
}
