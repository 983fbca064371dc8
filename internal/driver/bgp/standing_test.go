package bgp

import (
	"io"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"fairlead.dev/internal/model"
)

// What a router said of why it ends the session stands until there is one again, though every attempt after it ends
// without a word.
func TestReasonStands(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script func(*line)
		want   model.SessionReason
		words  string
	}{
		"shutdown": {func(l *line) {
			l.shake()
			l.send(packet.NewBGPNotificationMessage(6, 2, communicated("maintenance until noon")))
		}, model.SessionNotified, `"maintenance until noon"`},
		"wrong-as": {func(l *line) {
			l.read()
			l.send(packet.NewBGPNotificationMessage(2, 2, nil))
		}, model.SessionWrongAS, "refuses our AS 64512"},
		"its-as": {func(l *line) {
			l.send(openOf(65000, 30, "192.0.2.1"))
			l.drain()
		}, model.SessionWrongAS, "AS 65000"},
		"max-prefixes": {func(l *line) {
			l.shake()
			l.send(packet.NewBGPNotificationMessage(6, 1, nil))
		}, model.SessionNotified, "fewer prefixes than we send"},
		"rejected": {func(l *line) {
			l.read()
			l.send(packet.NewBGPNotificationMessage(6, 5, nil))
		}, model.SessionNotified, "does not know this machine"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mended atomic.Bool
			const silent = 4
			bad := newFake(t, func(l *line) {
				switch {
				case l.n == 1:
					c.script(l)
				case mended.Load():
					l.shake()
					l.keep()
				default:
					l.read() // and closes without a word
				}
			})
			s := speak(t, only(bad.peer("bad")))
			s.reason("bad", c.want, c.words)
			for bad.connections() < 1+silent {
				for _, x := range s.Sessions() {
					if x.Reason != c.want || !strings.Contains(x.Message, c.words) {
						t.Fatalf("after %d connections the reason is %s: %s", bad.connections(), x.Reason, x.Message)
					}
				}
				<-s.poke
			}
			s.until("bad", "what happened since", func(x model.Session) bool {
				return x.Reason == c.want && strings.Contains(x.Message, "; since then: it closed the connection in state open-sent")
			})
			mended.Store(true)
			x := s.until("bad", "established without a reason", func(x model.Session) bool {
				return x.State == model.SessionEstablished && x.Reason == model.SessionOK
			})
			if x.Message != "" {
				t.Errorf("the message stands: %s", x.Message)
			}
		})
	}
}

// Which of two reasons stands.
func TestWhichReasonStands(t *testing.T) {
	t.Parallel()
	c := model.Peer{Name: "a", Address: netip.MustParseAddr("192.0.2.1"), LocalASN: ourASN, PeerASN: theirASN, IPv4: true}
	all := map[string]*failure{
		"shutdown": notice(6, 2, communicated("later")), "wrong AS": notice(2, 2, nil), "rejected": notice(6, 5, nil), "reset by somebody": notice(6, 4, nil),
		"reset with words": notice(6, 4, communicated("later")), "out of resources": notice(6, 8, nil), "their hold time": notice(4, 0, nil),
		"closed": broken(c, model.SessionOpenSent, io.EOF, 0), "refused": unconnected(c, syscall.ECONNREFUSED, true),
		"no route": unconnected(c, syscall.ENETUNREACH, true), "flaps": {reason: model.SessionFlapping, message: "flaps"},
		"bad configuration": check(model.Peer{Name: "a", Address: c.Address, LocalASN: ourASN, PeerASN: theirASN}), "a bug": fail(c, model.SessionFault, "a bug"),
	}
	for _, row := range []struct{ before, after, stands string }{
		{"closed", "refused", "refused"},
		{"refused", "closed", "closed"}, // the daemon has started since, and does not know us
		{"refused", "no route", "no route"},
		{"closed", "shutdown", "shutdown"},
		{"shutdown", "closed", "shutdown"},
		{"shutdown", "refused", "shutdown"},
		{"shutdown", "rejected", "shutdown"},
		{"shutdown", "flaps", "shutdown"},
		{"shutdown", "wrong AS", "wrong AS"},
		{"a bug", "closed", "a bug"},
		{"rejected", "closed", "rejected"},
		{"rejected", "refused", "refused"},
		{"rejected", "shutdown", "shutdown"},
		{"reset by somebody", "closed", "reset by somebody"},
		{"reset by somebody", "no route", "no route"},
		{"reset with words", "no route", "reset with words"},
		{"out of resources", "refused", "refused"},
		{"their hold time", "no route", "no route"},
		{"flaps", "closed", "flaps"},
		{"flaps", "no route", "no route"},
		{"shutdown", "bad configuration", "bad configuration"},
		{"bad configuration", "closed", "closed"},
	} {
		before, after, want := all[row.before], all[row.after], all[row.stands]
		reason, message := account(before, after, c)
		if reason != want.reason || !strings.HasPrefix(message, want.message) {
			t.Errorf("%s, then %s: %s: %s", row.before, row.after, reason, message)
		}
		if kept := row.stands == row.before; kept != strings.Contains(message, "; since then: ") {
			t.Errorf("%s, then %s: the message is %s", row.before, row.after, message)
		}
	}
}

// A session that is lost again and again because the router wants it so has that for its reason.
func TestFlappingKeepsTheCause(t *testing.T) {
	t.Parallel()
	bad := newFake(t, func(l *line) {
		l.shake()
		l.send(packet.NewBGPNotificationMessage(6, 1, nil))
	})
	s := speak(t, only(bad.peer("bad")))
	x := s.until("bad", "lost again and again", func(x model.Session) bool { return x.Flaps >= flapLosses && x.State != model.SessionEstablished })
	if x.Reason != model.SessionNotified || !strings.Contains(x.Message, "fewer prefixes") || !strings.Contains(x.Message, "again and again") {
		t.Errorf("the reason is %s: %s", x.Reason, x.Message)
	}
}
