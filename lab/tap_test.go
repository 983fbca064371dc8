package lab

import (
	"bytes"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// A tap sees what its machine sends, also what vanishes, with the time, and nothing that
// others send.
func TestTapSeesWhatAMachineSends(t *testing.T) {
	l := up(t, routed("tap"))
	client, server := l.Machine("client"), l.Machine("server")
	var mu sync.Mutex
	seen := map[string]time.Time{}
	stop, err := client.Tap(func(x Frame) {
		mu.Lock()
		defer mu.Unlock()
		for _, word := range []string{"from the client", "into the hole", "from the server"} {
			if bytes.Contains(x.Data, []byte(word)) {
				seen[word] = x.At
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	send := func(from, to *Machine, word string) {
		t.Helper()
		conn, err := from.Dial(t.Context(), "udp", netip.AddrPortFrom(to.Addr4(), 9).String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = conn.Write([]byte(word)) // an error is about the one before
	}
	await := func(from, to *Machine, word string) {
		t.Helper()
		began := time.Now()
		for ctx := deadline(t); ; pause(ctx, t) {
			send(from, to, word)
			mu.Lock()
			at, is := seen[word]
			mu.Unlock()
			if is {
				if at.Before(began.Add(-time.Second)) || at.After(time.Now().Add(time.Second)) {
					t.Errorf("%q was sent at %s, now it is %s", word, at, time.Now())
				}
				return
			}
		}
	}
	// Somebody takes it: the client would send it back with an error otherwise.
	taker, err := client.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(client.Addr4(), 9).String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taker.Close() }()
	send(server, client, "from the server")
	if _, _, err := taker.ReadFrom(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	await(client, server, "from the client")
	if err := client.SetBlackhole(true); err != nil {
		t.Fatal(err)
	}
	await(client, server, "into the hole")
	stop()
	mu.Lock()
	defer mu.Unlock()
	if _, is := seen["from the server"]; is {
		t.Error("it sees what the server sends")
	}
}
