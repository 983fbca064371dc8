package console

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	v1 "fairlead.dev/internal/console/v1"
)

// frame is an Ethernet frame of some layers.
func frame(t *testing.T, l ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, l...); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func ethernet(kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: make(net.HardwareAddr, 6), DstMAC: make(net.HardwareAddr, 6), EthernetType: kind}
}

func TestDropText(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	ip4 := &layers.IPv4{Version: 4, IHL: 5, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: net.IP{198, 51, 100, 7}, DstIP: net.IP{192, 0, 2, 1}}
	later := *ip4
	later.FragOffset = 100
	ip6 := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolUDP, SrcIP: net.ParseIP("2001:db8::7"), DstIP: net.ParseIP("2001:db8::1")}
	whole := frame(t, ethernet(layers.EthernetTypeIPv4), ip4, &layers.TCP{SrcPort: 4000, DstPort: 80})
	for want, data := range map[string][]byte{
		"tcp 198.51.100.7:4000 > 192.0.2.1:80":      whole,
		"tcp 198.51.100.7 > 192.0.2.1":              whole[:14+20+3],
		"udp [2001:db8::7]:4000 > [2001:db8::1]:53": frame(t, ethernet(layers.EthernetTypeDot1Q), &layers.Dot1Q{Type: layers.EthernetTypeIPv6}, ip6, &layers.UDP{SrcPort: 4000, DstPort: 53}),
		"ethertype 0x0806":                          frame(t, ethernet(layers.EthernetTypeARP)),
		"ethertype 0x0800":                          whole[:20],
		"no frame":                                  whole[:10],
	} {
		got := DropText(v1.Drop{At: at, Reason: "no-backend", Interface: "eth0", Length: 60, Data: data})
		if want = "03:04:05.678  no-backend  eth0  " + want + "  60 bytes"; got != want {
			t.Errorf("it says %s, want %s", got, want)
		}
	}
	if got := frameText(frame(t, ethernet(layers.EthernetTypeIPv4), &later, gopacket.Payload("datadata"))); got != "tcp 198.51.100.7 > 192.0.2.1" {
		t.Errorf("a later fragment is %s", got)
	}
}

func FuzzDropText(f *testing.F) {
	f.Add(bytes.Repeat([]byte{8, 0}, 40))
	f.Add(append(append(make([]byte, 12), 0x08, 0x00), bytes.Repeat([]byte{0x4f}, 30)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if frameText(b) == "" {
			t.Error("it says nothing")
		}
	})
}

// TestCaptureIsRead by a library that others wrote.
func TestCaptureIsRead(t *testing.T) {
	var file bytes.Buffer
	c, err := NewCapture(&file)
	if err != nil {
		t.Fatal(err)
	}
	drops := []v1.Drop{
		{At: time.Unix(1_767_323_045, 678_901_234).UTC(), Reason: "no-backend", Interface: "eth0", Length: 1500, Data: bytes.Repeat([]byte{1}, 61)},
		{At: time.Unix(1_767_323_046, 0).UTC(), Reason: "source-refused", Interface: "eth1.100", Length: 64, Data: bytes.Repeat([]byte{2}, 64)},
		{At: time.Unix(1_767_323_047, 0).UTC(), Reason: "x", Interface: "eth0", Data: []byte{3}},
	}
	for _, d := range drops {
		if err := c.Write(d); err != nil {
			t.Fatal(err)
		}
	}
	for _, comment := range []string{"dropped: no-backend", "dropped: source-refused"} {
		if !strings.Contains(file.String(), comment) {
			t.Errorf("the file does not say %q", comment)
		}
	}
	r, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range drops {
		data, info, err := r.ReadPacketData()
		if err != nil {
			t.Fatal(err)
		}
		of, err := r.Interface(info.InterfaceIndex)
		if err != nil || of.Name != d.Interface || of.LinkType != layers.LinkTypeEthernet {
			t.Errorf("it is of %+v, %v", of, err)
		}
		if !bytes.Equal(data, d.Data) || !info.Timestamp.Equal(d.At) || info.Length != max(d.Length, len(d.Data)) {
			t.Errorf("read %+v, %v; want %+v", info, data, d)
		}
	}
	if _, _, err := r.ReadPacketData(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestDropsAreFollowed(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "drops.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d := v1.Drop{At: time.Unix(1, 2).UTC(), Reason: "no-backend", Interface: "eth0", Length: 60, Data: []byte{1, 2}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{}, 8)
	done := make(chan error, 1)
	go func() {
		done <- ServeDrops(ctx, l, func(ctx context.Context, reasons []string, begun func(), f func(v1.Drop)) error {
			defer func() { ended <- struct{}{} }()
			if slices.Contains(reasons, "none") {
				return errors.New("unknown reason none")
			}
			begun()
			for range 3 {
				f(d)
			}
			<-ctx.Done()
			return nil
		})
	}()
	follow, stop := context.WithCancel(t.Context())
	n := 0
	begun := 0
	err = FollowDrops(follow, socket, []string{"no-backend"}, func() { begun++ }, func(got v1.Drop) error {
		if !reflect.DeepEqual(got, d) {
			t.Errorf("came as %+v", got)
		}
		if n++; n == 3 {
			stop()
		}
		return nil
	})
	if err != nil || n != 3 || begun != 1 {
		t.Errorf("%d packets, begun %d times, %v", n, begun, err)
	}
	<-ended // the capture ends with its reader
	if err := FollowDrops(t.Context(), socket, []string{"none"}, func() { t.Error("it began") }, nil); err == nil || !strings.HasSuffix(err.Error(), "unknown reason none") {
		t.Errorf("for no reason: %v", err)
	}
	enough := errors.New("enough")
	if err := FollowDrops(t.Context(), socket, nil, func() {}, func(v1.Drop) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("a reader that fails: %v", err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if err := FollowDrops(t.Context(), socket, nil, nil, nil); err == nil || strings.Contains(err.Error(), "http") {
		t.Errorf("of an agent that is gone it says %v", err)
	}
	const nobody = "http://127.0.0.1:1"
	if _, err := (Client{URL: nobody, HTTP: http.DefaultClient}).Get(t.Context(), v1.StatusPath); err == nil || strings.Count(err.Error(), nobody) != 1 {
		t.Errorf("of a plane that is gone it says %v", err)
	}
}
