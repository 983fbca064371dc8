// Command testsum reads `go test -json` and prints what a person wants to know:
// a line for every package, each failure whole, each skip with its reason, and
// at the end "N passed, N failed, N skipped".
//
//	go test -json ./... | go run ./tools/testsum -skips tools/skips.txt
//
// It refuses to call a run good that it did not see to the end: a package that
// started and never ended, a run without a single test, and a skip that the list
// does not allow all count as failures. Exit status 1 means that something failed.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	skips := flag.String("skips", "", "file that lists the skips which are allowed; without it every skip is")
	root := flag.Bool("root", os.Geteuid() == 0, "whether the tests ran as root: skips for want of root are then not allowed")
	flag.Parse()

	allowed := allowList{all: true}
	if *skips != "" {
		text, err := os.ReadFile(*skips)
		if err == nil {
			allowed, err = parseAllowList(string(text), *root)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "testsum: %s: %v\n", *skips, err)
			os.Exit(2)
		}
	}
	s := newSummary(os.Stdout, allowed)
	if err := s.read(os.Stdin); err != nil {
		fmt.Fprintf(os.Stderr, "testsum: read test events: %v\n", err)
		os.Exit(2)
	}
	if !s.finish() {
		os.Exit(1)
	}
}
