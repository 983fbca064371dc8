// Package rtdump reads whole lists from the kernel over netlink, the machine's addresses among
// them.
//
// A list that does not fit one message is read in parts, and what it lists may change in
// between: the kernel then marks it as inconsistent (NLM_F_DUMP_INTR, Linux's
// Documentation/userspace-api/netlink/intro.rst), and entries may be missing. On machines where
// containers come and go that is an everyday thing. To act on what such a list lacks would be to
// take away what is there. Go's net.Interfaces and net.InterfaceAddrs do not look at the mark.
package rtdump

import (
	"errors"
	"time"

	"github.com/vishvananda/netlink"
)

const (
	// tries is how often a list is read at most.
	tries = 12
	// pause is how much longer each try waits than the one before: they take 66 ms in all, in
	// which a burst of changes ends.
	pause = time.Millisecond
)

// Whole returns what read returns, which is called again while its list changes under it. An
// error that wraps netlink.ErrDumpInterrupted says that the list never stood still: what was
// known of it before is better than what came now.
func Whole[T any](read func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		list, err := read()
		if try == tries || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return list, err
		}
		time.Sleep(time.Duration(try) * pause)
	}
}
