package packet

import (
	"os"
	"testing"

	"fairlead.dev/internal/model"
)

func TestEveryCaseIsSent(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it loads a BPF program")
	}
	b, err := New(100, 1<<17)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	for _, c := range []Case{
		{Name: "ipip", Mode: model.ModeDSRIPIP, Flows: 1, VIPs: 1},
		{Name: "1k", Mode: model.ModeDSRIPIP, Flows: 1024, VIPs: 1},
		{Name: "64k", Mode: model.ModeDSRIPIP, Flows: 65536, VIPs: 1},
		{Name: "1k VIPs", Mode: model.ModeDSRIPIP, Flows: 65536, VIPs: 1000},
		{Name: "syn", Mode: model.ModeDSRIPIP, Flows: 1, VIPs: 1, SYN: true},
		{Name: "syn 64k", Mode: model.ModeDSRIPIP, Flows: 65536, VIPs: 1, SYN: true},
		{Name: "new", Mode: model.ModeDSRIPIP, Flows: 1, VIPs: 1, SYN: true, New: true},
		{Name: "udp", Mode: model.ModeDSRIPIP, Flows: 1, VIPs: 1, UDP: true},
		{Name: "udp 64k", Mode: model.ModeDSRIPIP, Flows: 65536, VIPs: 1, UDP: true},
		{Name: "ipv6", Mode: model.ModeDSRIPIP, Flows: 1, VIPs: 1, IPv6: true},
		{Name: "geneve", Mode: model.ModeDSRGeneve, Flows: 1, VIPs: 1},
		{Name: "geneve 64k", Mode: model.ModeDSRGeneve, Flows: 65536, VIPs: 1},
		{Name: "nat", Mode: model.ModeNAT, Flows: 1, VIPs: 1},
		{Name: "nat 64k", Mode: model.ModeNAT, Flows: 65536, VIPs: 1},
		{Name: "sources", Mode: model.ModeDSRIPIP, Flows: 1, VIPs: 1, Sources: true},
		{Name: "affinity", Mode: model.ModeDSRIPIP, Flows: 1, VIPs: 1, Affinity: true},
	} {
		cost, err := b.Measure(c, 20)
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		t.Logf("%s: %.1f ns, least %.1f", c.Name, cost.Median, cost.Min)
	}
}

func TestLiveFramesArrive(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes a network namespace")
	}
	b, err := New(100, 1<<17)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	for _, mode := range []model.ForwardMode{model.ModeDSRIPIP, model.ModeDSRGeneve} {
		l, err := b.Live(Case{Mode: mode, Flows: 1024, VIPs: 1}, 200_000)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.2f Mpps, %.1f %% arrived", mode, l.Mpps, 100*l.Arrived)
		if l.Arrived < 0.5 {
			t.Errorf("%s: %.1f %% of the frames arrived", mode, 100*l.Arrived)
		}
	}
}
