package bpf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// AllowLookups turns on forwarding for the loopback, through which nothing is forwarded: the
// kernel tells programs the route of packets that come from an interface only if that
// forwards. so says what follows if it cannot.
func AllowLookups(sysctls, so string) error {
	var errs []error
	for _, family := range []string{"ipv4", "ipv6"} {
		file := filepath.Join(sysctls, "net", family, "conf/lo/forwarding")
		text, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(text)) != "0":
			continue // no such family, or done
		case err == nil:
			err = os.WriteFile(file, []byte("1"), 0)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("net.%s.conf.lo.forwarding is 0 and cannot be set, so that %s: %w", family, so, err))
		}
	}
	return errors.Join(errs...)
}
