package address

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Sysctls is where the kernel shows the settings of its network.
const Sysctls = "/proc/sys/net"

// silence sees to it that no interface answers ARP for addresses of scope host, nor
// names them in requests. It changes only what does not do so, and never the settings
// of "all", which would override what somebody chose for one interface. Interfaces
// that come later take the values of "default".
func silence(sysctls string) error {
	settings := filepath.Join(sysctls, "ipv4", "conf")
	interfaces, err := os.ReadDir(settings)
	if err != nil {
		return fmt.Errorf("keep the kernel from answering ARP: %w", err)
	}
	for _, s := range []struct {
		name  string
		value int
		does  func(int) bool
	}{
		// 1 and 2 answer only for addresses of the interface, 3 not for scope host, 8 for none.
		{"arp_ignore", 3, func(v int) bool { return v == 1 || v == 2 || v == 3 || v == 8 }},
		// At 0 and 1 the source of a packet that waits for an answer is named as the sender.
		{"arp_announce", 2, func(v int) bool { return v == 2 }},
	} {
		all, err := setting(settings, "all", s.name)
		if err != nil {
			return fmt.Errorf("keep the kernel from answering ARP: %w", err)
		}
		for _, i := range interfaces {
			name := i.Name()
			if name == "all" || name == "lo" {
				continue
			}
			v, err := setting(settings, name, s.name)
			if err == nil && !s.does(max(v, all)) { // the kernel uses the larger one
				err = os.WriteFile(filepath.Join(settings, name, s.name), []byte(strconv.Itoa(s.value)), 0)
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // it went meanwhile
				return fmt.Errorf("keep the kernel from answering ARP for VIPs: set net.ipv4.conf.%s.%s=%d: %w",
					name, s.name, s.value, err)
			}
		}
	}
	return nil
}

func setting(settings, dev, name string) (int, error) {
	v, err := os.ReadFile(filepath.Join(settings, dev, name))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(v)))
}
