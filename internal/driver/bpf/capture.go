package bpf

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"github.com/vishvananda/netlink"
)

// Captured is a packet that was dropped.
type Captured struct {
	Since     time.Duration // since the machine's start
	Reason    string
	Interface string // where it came from
	Length    int    // of the packet, bytes
	Data      []byte // the beginning of the frame
}

// CheckReasons returns an error that names the first unknown reason.
func CheckReasons(names []string) error {
	for _, r := range names {
		if !slices.Contains(reasons[1:], r) {
			return fmt.Errorf("unknown reason %q; the reasons are %v", r, Reasons())
		}
	}
	return nil
}

// Captures calls f for each packet that is dropped for one of the reasons, or for any if none are
// named, until ctx is done; then the reader is closed. At a high rate some packets are left out.
func Captures(ctx context.Context, reader *ringbuf.Reader, of []string, f func(Captured)) error {
	// Only this ends a Read that waits: a deadline would be taken note of by the next one.
	stop := context.AfterFunc(ctx, func() { _ = reader.Close() })
	defer stop()
	names := map[uint32]string{}
	for {
		record, err := reader.Read()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		var c libCapture
		if err := binary.Read(bytes.NewReader(record.RawSample), binary.NativeEndian, &c); err != nil {
			continue
		}
		name := reasonName(c.Reason)
		if len(of) > 0 && !slices.Contains(of, name) {
			continue
		}
		if _, known := names[c.Device]; !known {
			names[c.Device] = fmt.Sprint(c.Device)
			if l, err := netlink.LinkByIndex(int(c.Device)); err == nil {
				names[c.Device] = l.Attrs().Name
			}
		}
		f(Captured{
			Since: time.Duration(c.At), Reason: name, Interface: names[c.Device], Length: int(c.Length),
			Data: slices.Clone(c.Data[:min(int(c.Bytes), len(c.Data))]),
		})
	}
}
