package xdp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
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

// Capture calls begun once packets are captured, and f for each that is dropped for one of the
// reasons, or for any if none are named, until ctx is done. Of very many some are left out.
// One runs at a time; when it returns, the next one may.
func (d *DataPlane) Capture(ctx context.Context, of []string, begun func(), f func(Captured)) error {
	for _, r := range of {
		if !slices.Contains(reasons[1:], r) {
			return fmt.Errorf("capture dropped packets: there is no reason %q; there are %v", r, Reasons())
		}
	}
	reader, err := d.startCapture()
	if err != nil {
		return fmt.Errorf("capture dropped packets: %w", err)
	}
	defer d.endCapture(reader)
	// Only this ends a Read that waits: a deadline would be taken note of by the next one.
	stop := context.AfterFunc(ctx, func() { _ = reader.Close() })
	defer stop()
	begun()
	names := map[uint32]string{}
	for {
		record, err := reader.Read()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("capture dropped packets: %w", err)
		}
		var c bpfCapture
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

func (d *DataPlane) startCapture() (*ringbuf.Reader, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.k == nil || d.closed {
		return nil, errors.New("nothing is balanced here by XDP")
	}
	if d.captures > 0 {
		return nil, errors.New("another capture runs on this machine; end it first")
	}
	reader, err := ringbuf.NewReader(d.k.maps.Captures)
	if err != nil {
		return nil, err
	}
	d.captures++
	if err := d.settings(d.want.Nodes[d.want.Machine]); err != nil {
		d.captures--
		return nil, errors.Join(err, reader.Close())
	}
	return reader, nil
}

func (d *DataPlane) endCapture(reader *ringbuf.Reader) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.captures--
	if d.k != nil && !d.closed {
		if err := d.settings(d.want.Nodes[d.want.Machine]); err != nil {
			d.c.Log.Warn("programs still write down what they drop", "error", err)
		}
	}
	_ = reader.Close()
}
