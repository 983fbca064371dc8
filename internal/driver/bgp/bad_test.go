package bgp

import (
	"io"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// Every way in which a peer can be bad has its reason, and never disturbs the good peer next to it.
func TestBadPeers(t *testing.T) {
	t.Parallel()
	notification := func(code, subcode uint8) *packet.BGPMessage {
		return packet.NewBGPNotificationMessage(code, subcode, nil)
	}
	good := openOf(theirASN, 30, "192.0.2.1", packet.RF_IPv4_UC)
	cases := []struct {
		name   string
		script func(*line)
		change func(*model.Peer)
		reason model.SessionReason
		words  []string
		// told is the NOTIFICATION that the peer should get.
		told string
	}{
		{name: "closes", script: func(*line) {}, reason: model.SessionReset, words: []string{"open-sent", "neighbour"}},
		{name: "resets", script: func(l *line) { l.read(); _ = l.conn.SetLinger(0) }, reason: model.SessionReset},
		{
			name: "silent", script: func(l *line) { l.drain() },
			reason: model.SessionHoldExpired, words: []string{"no OPEN"},
		},
		{
			name: "silent-after-open", script: func(l *line) { l.read(); l.send(good); l.drain() },
			change: func(p *model.Peer) { p.HoldTime = 3 * time.Second },
			reason: model.SessionHoldExpired, words: []string{"no KEEPALIVE"},
		},
		{
			name: "silent-when-up", script: func(l *line) { l.shake(); l.drain() },
			change: func(p *model.Peer) { p.HoldTime = 3 * time.Second },
			reason: model.SessionHoldExpired, words: []string{"nothing came within the hold time of 3s"},
		},
		{
			name: "garbage", script: func(l *line) { _, _ = l.conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")); l.drain() },
			reason: model.SessionProtocolError, words: []string{"marker", "BGP speaker"}, told: "1/1",
		},
		{
			name: "garbage-when-up", script: func(l *line) { l.shake(); _, _ = l.conn.Write(make([]byte, 64)); l.drain() },
			reason: model.SessionProtocolError, words: []string{"established"},
		},
		{
			name: "length", script: func(l *line) {
				_, _ = l.conn.Write([]byte(strings.Repeat("\xff", 16) + "\x00\x05\x01"))
				l.drain()
			},
			reason: model.SessionProtocolError, words: []string{"5 bytes"}, told: "1/2",
		},
		{
			name: "type", script: func(l *line) {
				_, _ = l.conn.Write([]byte(strings.Repeat("\xff", 16) + "\x00\x13\x63"))
				l.drain()
			},
			reason: model.SessionProtocolError, told: "1/3",
		},
		{
			name: "truncated-open", script: func(l *line) {
				_, _ = l.conn.Write([]byte(strings.Repeat("\xff", 16) + "\x00\x15\x01\x04\xfc"))
				l.drain()
			},
			reason: model.SessionProtocolError, told: "1/2",
		},
		{
			name: "keepalive-with-body", script: func(l *line) {
				l.shake()
				_, _ = l.conn.Write([]byte(strings.Repeat("\xff", 16) + "\x00\x14\x04\x00"))
				l.drain()
			},
			reason: model.SessionProtocolError, words: []string{"type 4", "20 bytes"}, told: "1/2",
		},
		{
			name: "longest-shutdown-before-open", script: func(l *line) {
				_, _ = l.conn.Write([]byte(strings.Repeat("\xff", 16) + "\x01\x15\x03\x06\x02\xff" + strings.Repeat("x", 255)))
				l.drain()
			},
			reason: model.SessionNotified, words: []string{"shut down", strings.Repeat("x", 255)},
		},
		{
			name: "keepalive-first", script: func(l *line) { l.send(packet.NewBGPKeepAliveMessage()); l.drain() },
			reason: model.SessionProtocolError, words: []string{"open-sent"}, told: "5/1",
		},
		{
			name: "update-early", script: func(l *line) { l.send(good, update("198.51.100.0/24")); l.drain() },
			reason: model.SessionProtocolError, words: []string{"open-confirm"}, told: "5/2",
		},
		{
			name: "wrong-as", script: func(l *line) { l.send(openOf(65000, 30, "192.0.2.1")); l.drain() },
			reason: model.SessionWrongAS, words: []string{"AS 65000", "AS 64513 is expected"}, told: "2/2",
		},
		{
			name: "refuses-our-as", script: func(l *line) { l.read(); l.send(good, notification(2, 2)); l.drain() },
			reason: model.SessionWrongAS, words: []string{"refuses our AS 64512"},
		},
		{
			name: "refuses-our-as-at-once", script: func(l *line) { l.read(); l.send(notification(2, 2)) },
			reason: model.SessionWrongAS, words: []string{"refuses our AS 64512"},
		},
		{
			name: "our-router-id", script: func(l *line) { l.send(openOf(ourASN, 30, "192.0.2.99")); l.drain() },
			change: func(p *model.Peer) { p.PeerASN = ourASN },
			reason: model.SessionProtocolError, words: []string{"router id 192.0.2.99"}, told: "2/3",
		},
		{
			name: "refuses-our-router-id", script: func(l *line) { l.read(); l.send(notification(2, 3)) },
			reason: model.SessionNotified, words: []string{"router id 192.0.2.99", "2/3"},
		},
		{
			name: "no-router-id", script: func(l *line) { l.send(openOf(theirASN, 30, "0.0.0.0")); l.drain() },
			reason: model.SessionProtocolError, words: []string{"0.0.0.0"}, told: "2/3",
		},
		{
			name: "collision", script: func(l *line) { l.read(); l.send(good, notification(6, 7)) },
			reason: model.SessionNotified, words: []string{"another connection", "router id"},
		},
		{
			name: "hold-time-1", script: func(l *line) { l.send(openOf(theirASN, 1, "192.0.2.1")); l.drain() },
			reason: model.SessionProtocolError, words: []string{"hold time of 1s"}, told: "2/6",
		},
		{
			name: "hold-time-2", script: func(l *line) { l.send(openOf(theirASN, 2, "192.0.2.1")); l.drain() },
			reason: model.SessionProtocolError, words: []string{"hold time of 2s"}, told: "2/6",
		},
		{
			name: "version", script: func(l *line) {
				m := openOf(theirASN, 30, "192.0.2.1")
				m.Body.(*packet.BGPOpen).Version = 3
				l.send(m)
				l.drain()
			},
			reason: model.SessionProtocolError, words: []string{"version 3"}, told: "2/1",
		},
		{
			name: "refuses-families", script: func(l *line) { l.read(); l.send(notification(2, 7)) },
			reason: model.SessionNoFamily, words: []string{"offers IPv4"},
		},
		{
			name: "other-family", script: func(l *line) {
				l.read()
				l.send(openOf(theirASN, 30, "192.0.2.1", packet.RF_IPv6_UC), packet.NewBGPKeepAliveMessage())
				l.drain()
			},
			reason: model.SessionNoFamily, words: []string{"does not carry IPv4"},
		},
		{
			name: "one-family", script: func(l *line) { l.shake(); l.drain() },
			change: func(p *model.Peer) { p.IPv6 = true },
			reason: model.SessionNoFamily, words: []string{"does not carry IPv6"},
		},
		{
			name: "unwanted", script: func(l *line) { l.shake(); l.send(update("198.51.100.0/24", "192.0.2.0/24")); l.drain() },
			reason: model.SessionUnwanted, words: []string{"2 prefixes"},
		},
		{
			name: "too-many", script: func(l *line) {
				l.shake()
				l.send(update("198.51.100.0/24", "192.0.2.0/24", "203.0.113.0/24"))
				l.drain()
			},
			change: func(p *model.Peer) { p.MaxPrefixes, p.EndAboveMax = 2, true },
			reason: model.SessionTooManyPrefixes, words: []string{"more than 2"}, told: "6/1",
		},
		{
			name: "shutdown", script: func(l *line) {
				l.shake()
				l.send(packet.NewBGPNotificationMessage(6, 2, []byte("\x0bmaintenance")))
			},
			reason: model.SessionNotified, words: []string{"shut down", `"maintenance"`},
		},
		{
			name: "rejected", script: func(l *line) { l.read(); l.send(notification(6, 5)) },
			reason: model.SessionNotified, words: []string{"does not know this machine"},
		},
		{
			name: "our-prefixes", script: func(l *line) { l.shake(); l.send(notification(6, 1)) },
			reason: model.SessionNotified, words: []string{"fewer prefixes than we send"},
		},
		{
			name: "flaps", script: func(l *line) { l.shake() },
			reason: model.SessionFlapping, words: []string{"again and again", "closed the connection"},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			bad := newFake(t, c.script)
			peer := bad.peer("bad")
			if c.change != nil {
				c.change(&peer)
			}
			neighbour := newFake(t, func(l *line) { l.shake(); l.keep() })
			s := speak(t, only(peer, neighbour.peer("good")))
			s.established("good")
			s.reason("bad", c.reason, c.words...)
			if c.told != "" {
				bad.wasTold(c.told)
			}
			if x := s.established("good"); x.Flaps != 0 || neighbour.connections() != 1 {
				t.Errorf("the good peer was disturbed: %+v, %d connections", x, neighbour.connections())
			}
		})
	}
}

// A peer that refuses what it is told says so and closes, while more is on its way to it. The reason is what it said, not
// that nothing can be written any more.
func TestLastWordsOfAPeer(t *testing.T) {
	t.Parallel()
	conf := model.Peer{Name: "bad", Address: netip.MustParseAddr("192.0.2.1"), LocalASN: ourASN, PeerASN: theirASN}
	said := func(messages ...incoming) *failure {
		c := &connection{p: newPeer(New(Config{}), netip.MustParseAddr("192.0.2.99"), conf), in: make(chan incoming, len(messages))}
		for _, m := range messages {
			c.in <- m
		}
		return c.stuck(conf, syscall.EPIPE)
	}
	alive, refusal := incoming{message: packet.NewBGPKeepAliveMessage()}, incoming{message: packet.NewBGPNotificationMessage(6, 1, nil)}
	if f := said(alive, refusal); f.reason != model.SessionNotified || !strings.Contains(f.message, "fewer prefixes than we send") {
		t.Errorf("the reason is %s: %s", f.reason, f.message)
	}
	if f := said(alive, incoming{err: io.EOF}); f.reason != model.SessionReset {
		t.Errorf("without last words the reason is %s: %s", f.reason, f.message)
	}
}
