package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

func number(n uint32) *uint32 { return &n }

func TestAttributes(t *testing.T) {
	external := model.Peer{LocalASN: 64512, PeerASN: 64513}
	internal := model.Peer{LocalASN: 64512, PeerASN: 64512}
	wide := model.Peer{LocalASN: 4200000001, PeerASN: 64513}
	for _, c := range []struct {
		name       string
		conf       model.Peer
		peer, pool model.PathOptions
		short      bool
		want, bad  string
	}{
		{name: "bare", conf: external, want: "{Origin: i} {AsPath: 64512}"},
		{name: "bare internal", conf: internal, want: "{Origin: i} {AsPath: } {LocalPref: 100}"},
		{
			name: "peer first", conf: external,
			peer: model.PathOptions{Communities: []string{"1:2", "no-export"}, MED: number(1)},
			pool: model.PathOptions{Communities: []string{"3:4", "1:2"}, MED: number(2), Prepend: 2},
			want: "{Origin: i} {AsPath: 64512 64512 64512} {Med: 1} {Communities: 1:2, no-export, 3:4}",
		},
		{
			name: "internal", conf: internal, peer: model.PathOptions{Prepend: 3}, pool: model.PathOptions{LocalPreference: number(0), MED: number(0)},
			want: "{Origin: i} {AsPath: } {Med: 0} {LocalPref: 0}",
		},
		{name: "external ignores preference", conf: external, peer: model.PathOptions{LocalPreference: number(9)}, want: "{Origin: i} {AsPath: 64512}"},
		{
			name: "well-known and large", conf: external,
			pool: model.PathOptions{Communities: []string{"no-advertise", "graceful-shutdown", "blackhole", "4200000001:0:4294967295"}},
			want: "{Origin: i} {AsPath: 64512} {Communities: no-advertise, planned-shut, blackhole} {LargeCommunity: [ 4200000001:0:4294967295]}",
		},
		{name: "four octets", conf: wide, want: "{Origin: i} {AsPath: 4200000001}"},
		{name: "two octets", conf: wide, short: true, peer: model.PathOptions{Prepend: 1}, want: "{Origin: i} {AsPath: 23456 23456} 4200000001 4200000001"},
		{name: "unreadable", conf: external, peer: model.PathOptions{Communities: []string{"65536:1", "x", "1:2"}}, want: "{Origin: i} {AsPath: 64512} {Communities: 1:2}", bad: "65536:1, x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := attributes(c.conf, join(c.peer, c.pool), !c.short)
			if got := fmt.Sprint(err); c.bad == "" && err != nil || !strings.Contains(got, c.bad) {
				t.Errorf("error %s, want %q", got, c.bad)
			}
			var out []string
			for _, a := range list {
				out = append(out, a.String())
			}
			if got := strings.Join(out, " "); got != c.want {
				t.Errorf("attributes are\n%s, want\n%s", got, c.want)
			}
		})
	}
}

func TestNextHop(t *testing.T) {
	parse := netip.MustParseAddr
	addrs := []localAddr{
		{addr: parse("127.0.0.1"), link: "lo", stable: true},
		{addr: parse("2001:db8:ff::1"), link: "lo", stable: true},
		{addr: parse("192.0.2.1"), link: "eth0", stable: true},
		{addr: parse("203.0.113.1"), link: "eth0", stable: true}, // a VIP
		{addr: parse("fe80::1%eth0"), link: "eth0", stable: true},
		{addr: parse("2001:db8::1"), link: "eth0"}, // temporary
		{addr: parse("2001:db8::2"), link: "eth0", stable: true},
		{addr: parse("fe80::2%eth1"), link: "eth1", stable: true},
		{addr: parse("198.51.100.1"), link: "eth2", stable: true},
	}
	vips := prefixes("203.0.113.1/32", "2001:db8:ff::1/128")
	explicit := model.Peer{NextHop4: netip.MustParsePrefix("10.0.0.1/32"), NextHop6: netip.MustParsePrefix("2001:db8::ff/128")}
	for _, c := range []struct {
		conf     model.Peer
		v6       bool
		on, want string
	}{
		{on: "192.0.2.1", want: "192.0.2.1"},
		{on: "192.0.2.1", v6: true, want: "2001:db8::2"},
		{on: "2001:db8::2", v6: true, want: "2001:db8::2"},
		{on: "2001:db8::2", want: "192.0.2.1"},
		{on: "fe80::1%eth0", want: "192.0.2.1"},
		{on: "fe80::1%eth0", v6: true, want: "2001:db8::2"},
		{on: "fe80::2%eth1", v6: true, want: "fe80::2"},
		{on: "fe80::2%eth1", want: "invalid IP"},
		{on: "198.51.100.1", v6: true, want: "invalid IP"},
		{on: "203.0.113.1", want: "192.0.2.1"},
		{on: "10.1.1.1", v6: true, want: "invalid IP"}, // no longer there
		{on: "192.0.2.1", conf: explicit, want: "10.0.0.1"},
		{on: "192.0.2.1", conf: explicit, v6: true, want: "2001:db8::ff"},
	} {
		if got := nextHop(c.conf, c.v6, parse(c.on), addrs, vips); got.String() != c.want {
			t.Errorf("next hop on %s (IPv6 %t): %s, want %s", c.on, c.v6, got, c.want)
		}
	}
}

// Messages stay below 4096 bytes however many prefixes there are, and say everything once.
func TestManyPrefixes(t *testing.T) {
	conf := model.Peer{LocalASN: 64512, PeerASN: 64513, IPv4: true, IPv6: true, NextHop6: netip.MustParsePrefix("2001:db8::1/128")}
	for i := range 40 {
		conf.Path.Communities = append(conf.Path.Communities, fmt.Sprintf("65000:%d", i))
	}
	mode := map[packet.Family]packet.BGPAddPathMode{packet.RF_IPv4_UC: packet.BGP_ADD_PATH_SEND, packet.RF_IPv6_UC: packet.BGP_ADD_PATH_SEND}
	a := agreed{fourOctets: true, families: map[packet.Family]bool{packet.RF_IPv4_UC: true, packet.RF_IPv6_UC: true}, addPath: mode}
	var list []Advertisement
	for i := range 1000 {
		list = append(list, prefixes(fmt.Sprintf("10.0.%d.%d/32", i/256, i%256), fmt.Sprintf("2001:db8::%x/128", i+2))...)
	}
	wanted, troubles := routes(conf, a, netip.MustParseAddr("192.0.2.1"), nil, list)
	if len(troubles) > 0 {
		t.Fatal(troubles)
	}
	rib := newRibOut()
	said := map[string]int{}
	for _, wanted := range []map[netip.Prefix]route{wanted, wanted, nil} {
		steps, err := rib.steps(wanted, false, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			m := s.message
			rib.wrote(s)
			b, err := encode(m, a)
			if err != nil || len(b) > packet.BGP_MAX_MESSAGE_LENGTH {
				t.Fatalf("a message of %d bytes: %v", len(b), err)
			}
			for _, w := range strings.Fields(describe(m.Body.(*packet.BGPUpdate))) {
				said[w]++
			}
		}
	}
	for _, v := range list {
		if said["+"+v.Prefix.String()] != 1 || said["-"+v.Prefix.String()] != 1 {
			t.Errorf("%s was said %d and taken back %d times", v.Prefix, said["+"+v.Prefix.String()], said["-"+v.Prefix.String()])
		}
	}
}

func TestOpenSaysThatForwardingIsPreserved(t *testing.T) {
	conf := model.Peer{LocalASN: 4200000001, PeerASN: 64513, IPv4: true, IPv6: true, HoldTime: 89500 * time.Millisecond, RestartTime: 2 * time.Minute, AddPath: true}
	for _, restarted := range []bool{true, false} {
		m, err := open(conf, netip.MustParseAddr("192.0.2.1"), restarted)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := m.Serialize()
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := packet.ParseBGPMessage(raw)
		if err != nil {
			t.Fatal(err)
		}
		o := parsed.Body.(*packet.BGPOpen)
		if o.MyAS != packet.AS_TRANS || o.HoldTime != 90 {
			t.Errorf("AS %d and hold time %d, want 23456 and 90", o.MyAS, o.HoldTime)
		}
		var restart *packet.CapGracefulRestart
		for _, p := range o.OptParams {
			for _, c := range p.(*packet.OptionParameterCapability).Capability {
				if v, ok := c.(*packet.CapGracefulRestart); ok {
					restart = v
				}
			}
		}
		if restart == nil || restart.Time != 120 || len(restart.Tuples) != 2 || restart.Flags&0x8 != 0 != restarted || restart.Flags&0x4 != 0 {
			t.Fatalf("graceful restart is %+v", restart)
		}
		for _, f := range restart.Tuples {
			if f.Flags != 0x80 {
				t.Errorf("the flags of a family are %#x, want forwarding preserved", f.Flags)
			}
		}
	}
}

// Lost sessions are tried again soon, and those that are lost again and again with a growing delay.
func TestDelays(t *testing.T) {
	now := time.Unix(0, 0)
	p := newPeer(New(Config{Now: func() time.Time { return now }}), netip.MustParseAddr("192.0.2.1"), model.Peer{Name: "a", ConnectRetry: 2 * time.Second})
	step := func(f failure, reason model.SessionReason, delay time.Duration) {
		t.Helper()
		if f.lost {
			p.failures = 0
		}
		f.reason, f.message = model.SessionReset, "closed"
		now = now.Add(f.lasted)
		if got := p.fail(&f); got != delay || p.session().Reason != reason {
			t.Errorf("delay %s and reason %s, want %s and %s", got, p.session().Reason, delay, reason)
		}
		now = now.Add(delay)
	}
	for _, delay := range []time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 2 * time.Second} {
		step(failure{}, model.SessionReset, delay)
	}
	lost := failure{lost: true, lasted: time.Millisecond}
	step(lost, model.SessionReset, 250*time.Millisecond)
	step(lost, model.SessionReset, 250*time.Millisecond)
	for _, delay := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute} {
		step(lost, model.SessionFlapping, delay)
	}
	if x := p.session(); x.Flaps != 8 || !strings.Contains(x.Message, "last: closed") {
		t.Errorf("the session is %+v", x)
	}
	step(failure{lost: true, lasted: flapWindow}, model.SessionReset, 250*time.Millisecond)
}

// No bytes of a peer may end the agent.
func FuzzDecode(f *testing.F) {
	for _, m := range []*packet.BGPMessage{
		openOf(theirASN, 30, "192.0.2.1", packet.RF_IPv4_UC, packet.RF_IPv6_UC), update("198.51.100.0/24"),
		packet.NewEndOfRib(packet.RF_IPv6_UC), packet.NewBGPNotificationMessage(6, 2, []byte("\x03bye")), packet.NewBGPKeepAliveMessage(),
	} {
		raw, err := m.Serialize()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw[18], raw[19:])
		// Every run of the tests has each length, and the edges of each byte, of which some are lengths.
		for i := 19; i < len(raw); i++ {
			f.Add(raw[18], raw[19:i])
			for _, v := range []byte{0, 1, 0x7f, 0x80, 0xff} {
				other := slices.Clone(raw)
				other[i] = v
				f.Add(raw[18], other[19:])
			}
		}
	}
	conf := model.Peer{Name: "a", LocalASN: ourASN, PeerASN: theirASN, IPv4: true, IPv6: true}
	id := netip.MustParseAddr("192.0.2.99")
	f.Fuzz(func(_ *testing.T, kind uint8, body []byte) {
		m, err := decode(kind, body, len(body)%2 == 0)
		if err != nil {
			_ = broken(conf, model.SessionEstablished, err, 0)
			return
		}
		switch b := m.Body.(type) {
		case *theirOpen:
			_, _ = agree(conf, id, b)
		case *packet.BGPUpdate:
			r := newReceived()
			_ = r.read(b, 10)
		case *packet.BGPNotification:
			_ = notified(conf, id, model.SessionEstablished, b)
		}
	})
}
