// Command write writes the software bill of materials of a package.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/CycloneDX/cyclonedx-go"

	"fairlead.dev/tools/sbom"
)

func run() error {
	version := flag.String("version", "", "version of the package")
	program := flag.String("program", "", "our program")
	envoy := flag.String("envoy", "", "Envoy, in the place of our program")
	libc := flag.String("libc", "", "print the version of the C library that this program needs, and write nothing")
	out := flag.String("out", "", "the file to write")
	flag.Parse()
	if *libc != "" {
		needed, err := sbom.Libc(*libc)
		if err == nil {
			fmt.Println(needed)
		}
		return err
	}
	name, add := "fairlead", func(b *sbom.Bill) error { return b.AddProgram(*program) }
	if *envoy != "" {
		name, add = "fairlead-envoy", func(b *sbom.Bill) error { return b.AddEnvoy(*envoy, *version) }
	}
	bill := sbom.New(name, *version, cyclonedx.ComponentTypeApplication)
	if err := add(bill); err != nil {
		return err
	}
	text, err := bill.JSON()
	if err != nil {
		return err
	}
	return os.WriteFile(*out, text, 0o644)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}
