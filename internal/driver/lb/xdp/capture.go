package xdp

import (
	"context"
	"errors"
	"fmt"

	"github.com/cilium/ebpf/ringbuf"

	"fairlead.dev/internal/driver/bpf"
)

// Capture calls begun once packets are captured, and f for each that is dropped for one of the
// reasons, or for any if none are named, until ctx is done. At a high rate some packets are
// left out. One runs at a time; when it returns, the next one may.
func (d *DataPlane) Capture(ctx context.Context, of []string, begun func(), f func(bpf.Captured)) error {
	if err := bpf.CheckReasons(of); err != nil {
		return fmt.Errorf("capture dropped packets: %w", err)
	}
	reader, err := d.startCapture()
	if err != nil {
		return fmt.Errorf("capture dropped packets: %w", err)
	}
	defer d.endCapture(reader)
	begun()
	if err := bpf.Captures(ctx, reader, of, f); err != nil {
		return fmt.Errorf("capture dropped packets: %w", err)
	}
	return nil
}

func (d *DataPlane) startCapture() (*ringbuf.Reader, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.k == nil || d.closed {
		return nil, errors.New("XDP balances nothing on this machine")
	}
	if d.captures > 0 {
		return nil, errors.New("another capture runs on this machine; stop it first")
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
			d.c.Log.Warn("cannot stop the recording of dropped packets", "error", err)
		}
	}
	_ = reader.Close()
}
