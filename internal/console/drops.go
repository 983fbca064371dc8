package console

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	v1 "fairlead.dev/internal/console/v1"
)

// Drops calls begun once it watches, and f for each packet that is dropped for one of the
// reasons, or for any, until ctx is done.
type Drops func(ctx context.Context, reasons []string, begun func(), f func(v1.Drop)) error

// DropsHandler serves v1.DropsPath.
func DropsHandler(drops Drops) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+v1.DropsPath, func(w http.ResponseWriter, r *http.Request) {
		begun := false
		stream := http.NewResponseController(w)
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		// The header says that packets are watched from here on; the first may be long in coming.
		begin := func() {
			begun = true
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
			if stream.Flush() != nil {
				cancel() // nobody reads
			}
		}
		err := drops(ctx, r.URL.Query()["reason"], begin, func(d v1.Drop) {
			if json.NewEncoder(w).Encode(d) != nil || stream.Flush() != nil {
				cancel() // nobody reads
			}
		})
		if err != nil && !begun {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	return mux
}

// ServeDrops serves v1.DropsPath at l until ctx is done.
func ServeDrops(ctx context.Context, l net.Listener, drops Drops) error {
	s := &http.Server{Handler: DropsHandler(drops), ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	defer context.AfterFunc(ctx, func() { _ = s.Close() })()
	if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve dropped packets at %s: %w", l.Addr(), err)
	}
	return nil
}

// FollowDrops asks the agent at a socket for dropped packets, calls begun once that watches
// them, and f for each until ctx is done or f fails.
func FollowDrops(ctx context.Context, socket string, reasons []string, begun func(), f func(v1.Drop) error) error {
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent"+v1.DropsPath+"?"+url.Values{"reason": reasons}.Encode(), nil)
	if err != nil {
		return fmt.Errorf("ask the agent at %s: %w", socket, err)
	}
	response, err := client.Do(request)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		if failed, is := errors.AsType[*url.Error](err); is {
			err = failed.Err // its address is made up
		}
		return fmt.Errorf("ask the agent at %s: %w", socket, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(response.Body, 4096)) // what came says enough
		return fmt.Errorf("the agent at %s: %s", socket, strings.TrimSpace(string(body)))
	}
	begun()
	lines := json.NewDecoder(response.Body)
	for {
		var d v1.Drop
		err := lines.Decode(&d)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("the agent at %s has ended", socket)
		case err != nil:
			return fmt.Errorf("read from the agent at %s: %w", socket, err)
		}
		if err := f(d); err != nil {
			return err
		}
	}
}

// Capture writes packets as pcapng (draft-ietf-opsawg-pcapng), each with its reason as
// comment.
type Capture struct {
	w          *bufio.Writer
	interfaces map[string]uint32
}

// The blocks and options of pcapng that a Capture has.
const (
	blockSection   = 0x0A0D0D0A
	blockInterface = 1
	blockPacket    = 6
	byteOrder      = 0x1A2B3C4D
	linkEthernet   = 1
	optionEnd      = 0
	optionComment  = 1
	optionName     = 2
	optionUnit     = 9
	nanoseconds    = 9 // of optionUnit: ten to the power of minus so much
)

// NewCapture begins a file.
func NewCapture(w io.Writer) (*Capture, error) {
	c := &Capture{w: bufio.NewWriter(w), interfaces: map[string]uint32{}}
	body := binary.LittleEndian.AppendUint32(nil, byteOrder)
	body = binary.LittleEndian.AppendUint16(body, 1) // version 1.0
	body = binary.LittleEndian.AppendUint16(body, 0)
	body = binary.LittleEndian.AppendUint64(body, ^uint64(0)) // length unknown
	c.block(blockSection, body)
	return c, c.flush()
}

// Write adds a packet, and brings it to the file.
func (c *Capture) Write(d v1.Drop) error {
	id, known := c.interfaces[d.Interface]
	if !known {
		id = uint32(len(c.interfaces))
		c.interfaces[d.Interface] = id
		body := binary.LittleEndian.AppendUint16(nil, linkEthernet)
		body = binary.LittleEndian.AppendUint16(body, 0)
		body = binary.LittleEndian.AppendUint32(body, 0) // no limit
		body = option(body, optionName, []byte(d.Interface))
		body = option(body, optionUnit, []byte{nanoseconds})
		c.block(blockInterface, option(body, optionEnd, nil))
	}
	at := uint64(d.At.UnixNano())
	body := binary.LittleEndian.AppendUint32(nil, id)
	body = binary.LittleEndian.AppendUint32(body, uint32(at>>32))
	body = binary.LittleEndian.AppendUint32(body, uint32(at))
	body = binary.LittleEndian.AppendUint32(body, uint32(len(d.Data)))
	body = binary.LittleEndian.AppendUint32(body, uint32(max(d.Length, len(d.Data))))
	body = pad(append(body, d.Data...))
	body = option(body, optionComment, []byte("dropped: "+d.Reason))
	c.block(blockPacket, option(body, optionEnd, nil))
	return c.flush()
}

// block writes one block; its body's length is a multiple of four.
func (c *Capture) block(kind uint32, body []byte) {
	head := binary.LittleEndian.AppendUint32(nil, kind)
	length := uint32(len(body) + 12)
	head = binary.LittleEndian.AppendUint32(head, length)
	// Errors of a bufio.Writer stay, and flush tells them.
	_, _ = c.w.Write(head)
	_, _ = c.w.Write(body)
	_, _ = c.w.Write(binary.LittleEndian.AppendUint32(nil, length))
}

func (c *Capture) flush() error {
	if err := c.w.Flush(); err != nil {
		return fmt.Errorf("write dropped packets: %w", err)
	}
	return nil
}

func option(body []byte, code uint16, value []byte) []byte {
	body = binary.LittleEndian.AppendUint16(body, code)
	body = binary.LittleEndian.AppendUint16(body, uint16(len(value)))
	return pad(append(body, value...))
}

func pad(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}
