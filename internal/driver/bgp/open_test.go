package bgp

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// capability writes one in bytes.
func capability(code byte, value ...byte) []byte {
	return append([]byte{code, byte(len(value))}, value...)
}

var ipv4Unicast, as4 = capability(1, 0, 1, 0, 1), capability(65, 0, 0, 0xfc, 0x01)

// openBytes is the body of an OPEN of AS 64513 with a list of capabilities in one parameter, wide or not (RFC 9072).
func openBytes(wide bool, capabilities ...[]byte) []byte {
	var list []byte
	for _, c := range capabilities {
		list = append(list, c...)
	}
	out := []byte{4, 0xfc, 0x01, 0, 30, 192, 0, 2, 1}
	if !wide {
		return append(append(out, byte(2+len(list)), 2, byte(len(list))), list...)
	}
	out = append(out, 255, 255)
	out = binary.BigEndian.AppendUint16(out, uint16(3+len(list)))
	out = append(out, 2)
	out = binary.BigEndian.AppendUint16(out, uint16(len(list)))
	return append(out, list...)
}

// A router offers what it can. None of that keeps the session from coming up, whatever we make of it.
func TestOpensOfOthers(t *testing.T) {
	t.Parallel()
	conf := model.Peer{Name: "a", LocalASN: ourASN, PeerASN: theirASN, IPv4: true, IPv6: true, AddPath: true}
	long := make([]byte, 200)
	for _, c := range []struct {
		name  string
		body  []byte
		check func(agreed) bool
	}{
		{"nothing", openBytes(false), func(a agreed) bool {
			return a.families[packet.RF_IPv4_UC] && !a.families[packet.RF_IPv6_UC] && !a.fourOctets
		}},
		{"the usual", openBytes(false, ipv4Unicast, as4), func(a agreed) bool { return a.families[packet.RF_IPv4_UC] && a.fourOctets }},
		{"extended next hop", openBytes(false, ipv4Unicast, as4, capability(5, 0, 1, 0, 1, 0, 2)), func(a agreed) bool { return a.ipv4OverIPv6 }},
		{"extended next hop of another family", openBytes(false, ipv4Unicast, as4, capability(5, 0, 1, 0, 128, 0, 2)), func(a agreed) bool { return !a.ipv4OverIPv6 }},
		{"empty extended next hop", openBytes(false, ipv4Unicast, as4, capability(5)), func(a agreed) bool { return !a.ipv4OverIPv6 }},
		{"broken extended next hop", openBytes(false, ipv4Unicast, as4, capability(5, 0, 1, 0)), func(a agreed) bool { return a.fourOctets }},
		{"empty ADD-PATH", openBytes(false, ipv4Unicast, as4, capability(69)), func(a agreed) bool { return len(a.addPath) == 0 }},
		{"ADD-PATH", openBytes(false, ipv4Unicast, as4, capability(69, 0, 1, 1, 1, 0, 2, 1, 2)), func(a agreed) bool { return len(a.addPath) == 1 }},
		{"odd ADD-PATH", openBytes(false, ipv4Unicast, as4, capability(69, 0, 1, 1, 9, 7)), func(a agreed) bool { return a.fourOctets }},
		{"odd multiprotocol", openBytes(false, ipv4Unicast, as4, capability(1, 0), capability(1, 0, 25, 0, 70)), func(a agreed) bool { return a.families[packet.RF_IPv4_UC] }},
		{"odd name", openBytes(false, ipv4Unicast, as4, capability(73, 9, 'r')), func(a agreed) bool { return a.fourOctets }},
		{"odd graceful restart", openBytes(false, ipv4Unicast, as4, capability(64, 0x80)), func(a agreed) bool { return !a.restarts }},
		{"unknown", openBytes(false, ipv4Unicast, as4, capability(239, long...)), func(a agreed) bool { return a.fourOctets }},
		{"long messages", openBytes(false, ipv4Unicast, as4, capability(6)), func(a agreed) bool { return a.longMessages }},
		{"wide", openBytes(true, ipv4Unicast, as4), func(a agreed) bool { return a.families[packet.RF_IPv4_UC] && a.fourOctets }},
		{"wide and long", openBytes(true, capability(239, long...), capability(240, long...), ipv4Unicast, as4), func(a agreed) bool { return a.families[packet.RF_IPv4_UC] && a.fourOctets }},
	} {
		m, err := decode(packet.BGP_MSG_OPEN, c.body, false)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		a, f := agree(conf, netip.MustParseAddr("192.0.2.99"), m.Body.(*theirOpen))
		if f != nil || !c.check(a) {
			t.Errorf("%s: agreed on %+v, failure %+v", c.name, a, f)
		}
	}
}

// Lengths that do not fit are told to the peer.
func TestBrokenOpens(t *testing.T) {
	t.Parallel()
	good := openBytes(false, ipv4Unicast, as4)
	wide := openBytes(true, ipv4Unicast, as4)
	for name, body := range map[string][]byte{
		"cut":                   good[:len(good)-1],
		"wide and cut":          wide[:len(wide)-1],
		"only the wide mark":    wide[:11],
		"longer than it says":   append(append([]byte{}, good...), 0),
		"capability too long":   {4, 0xfc, 0x01, 0, 30, 192, 0, 2, 1, 4, 2, 2, 65, 4},
		"parameter too long":    {4, 0xfc, 0x01, 0, 30, 192, 0, 2, 1, 2, 2, 9},
		"half a parameter":      {4, 0xfc, 0x01, 0, 30, 192, 0, 2, 1, 1, 2},
		"authentication (2/4)":  {4, 0xfc, 0x01, 0, 30, 192, 0, 2, 1, 3, 1, 1, 0},
		"too short for a start": {4, 0xfc, 0x01},
	} {
		m, err := decode(packet.BGP_MSG_OPEN, body, false)
		if err == nil {
			t.Errorf("%s: read as %+v", name, m.Body)
			continue
		}
		f := broken(model.Peer{Name: "a"}, model.SessionOpenSent, err, 0)
		n := f.notify.Body.(*packet.BGPNotification)
		if want := uint8(4); strings.Contains(name, "2/4") && n.ErrorSubcode != want || f.reason != model.SessionProtocolError {
			t.Errorf("%s: the failure is %+v, NOTIFICATION %d/%d", name, f, n.ErrorCode, n.ErrorSubcode)
		}
	}
}

// A session takes messages of up to 65,535 bytes, as its OPEN says (RFC 8654), and no longer KEEPALIVE.
func TestLongMessages(t *testing.T) {
	t.Parallel()
	long := newFake(t, func(l *line) {
		if o, is := l.read().Body.(*packet.BGPOpen); !is || !strings.Contains(capabilityNames(o), "extended-message") {
			return
		}
		l.send(openOf(theirASN, 30, "192.0.2.1", packet.RF_IPv4_UC), packet.NewBGPKeepAliveMessage())
		l.read()
		m := update("198.51.100.0/24")
		attribute := packet.NewPathAttributeUnknown(packet.BGP_ATTR_FLAG_OPTIONAL|packet.BGP_ATTR_FLAG_TRANSITIVE, 240, make([]byte, 60_000))
		u := m.Body.(*packet.BGPUpdate)
		u.PathAttributes = append(u.PathAttributes, attribute)
		b, err := m.Serialize(&packet.MarshallingOption{ExtendedMessage: true})
		if err != nil {
			panic(err)
		}
		_, _ = l.conn.Write(b)
		l.keep()
	})
	keepalive := newFake(t, func(l *line) {
		l.shake()
		_, _ = l.conn.Write([]byte(strings.Repeat("\xff", 16) + "\x10\x01\x04"))
		l.drain()
	})
	s := speak(t, only(long.peer("long"), keepalive.peer("keepalive")))
	if x := s.until("long", "a prefix that came in a long message", func(x model.Session) bool { return x.Received == 1 }); x.State != model.SessionEstablished {
		t.Errorf("the session is %+v", x)
	}
	keepalive.wasTold("1/2")
}

func capabilityNames(o *packet.BGPOpen) string {
	var names []string
	for _, p := range o.OptParams {
		if list, is := p.(*packet.OptionParameterCapability); is {
			for _, c := range list.Capability {
				names = append(names, c.Code().String())
			}
		}
	}
	return strings.Join(names, " ")
}
