package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// letLook turns on forwarding for the loopback, through which nothing is forwarded: the
// kernel tells programs the way of packets that come from an interface only if that
// forwards. Without it answers of mode NAT take the slow way through the kernel.
func letLook(sysctls string) error {
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
			errs = append(errs, fmt.Errorf("net.%s.conf.lo.forwarding is 0 and cannot be set, so that mode NAT and ways that are not resolved yet cost more: %w", family, err))
		}
	}
	return errors.Join(errs...)
}
