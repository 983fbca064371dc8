package openstack

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"fairlead.dev/internal/source/cloud"
)

func TestNotificationsAboutLoadBalancers(t *testing.T) {
	for _, c := range []struct {
		name, body string
		want       bool
	}{
		{"event of the worker", `{"oslo.version": "2.0", "oslo.message": "{\"event_type\": \"octavia.loadbalancer.update.end\", \"payload\": {}}"}`, true},
		{"audit of a change", `{"oslo.message": "{\"event_type\": \"audit.http.response\", \"payload\": {\"action\": \"update\", \"requestPath\": \"/v2.0/lbaas/pools/5c/members\"}}"}`, true},
		{"audit of a read", `{"oslo.message": "{\"event_type\": \"audit.http.response\", \"payload\": {\"action\": \"read/list\", \"requestPath\": \"/v2.0/lbaas/loadbalancers\"}}"}`, false},
		{"audit of a read of one", `{"oslo.message": "{\"event_type\": \"audit.http.response\", \"payload\": {\"action\": \"read\", \"requestPath\": \"/v2.0/lbaas/loadbalancers/5c\"}}"}`, false},
		{"another service", `{"oslo.message": "{\"event_type\": \"compute.instance.create.end\"}"}`, false},
		{"no JSON", "\x00\x01", false},
		{"nothing", "", false},
	} {
		if got := aboutLoadBalancers([]byte(c.body)); got != c.want {
			t.Errorf("%s: %t, not %t", c.name, got, c.want)
		}
	}
}

// frame sends a frame of AMQP 0-9-1, section 4.2.3 of its specification.
func frame(w io.Writer, kind byte, channel uint16, payload []byte) error {
	b := binary.BigEndian.AppendUint16([]byte{kind}, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	_, err := w.Write(append(append(b, payload...), 0xCE))
	return err
}

func method(w io.Writer, channel, class, id uint16, args string) error {
	b := binary.BigEndian.AppendUint16(nil, class)
	return frame(w, 1, channel, append(binary.BigEndian.AppendUint16(b, id), args...))
}

// endlessBroker greets one client, and then sends it the parts of one message until the
// connection is closed. It returns how many bytes it could send of it.
func endlessBroker(c net.Conn) (sent int) {
	r := bufio.NewReader(c)
	_, _ = io.ReadFull(r, make([]byte, 8))
	_ = method(c, 0, 10, 10, "\x00\x09\x00\x00\x00\x00\x00\x00\x00\x05PLAIN\x00\x00\x00\x05en_US")
	for {
		h := make([]byte, 7)
		if _, err := io.ReadFull(r, h); err != nil {
			return sent
		}
		p := make([]byte, binary.BigEndian.Uint32(h[3:])+1)
		if _, err := io.ReadFull(r, p); err != nil || h[0] != 1 {
			continue
		}
		channel := binary.BigEndian.Uint16(h[1:])
		switch fmt.Sprint(binary.BigEndian.Uint16(p), ".", binary.BigEndian.Uint16(p[2:])) {
		case "10.11": // start-ok; tune
			_ = method(c, 0, 10, 30, "\x07\xff\x00\x02\x00\x00\x00\x00")
		case "10.40": // open
			_ = method(c, 0, 10, 41, "\x00")
		case "20.10": // open of a channel
			_ = method(c, channel, 20, 11, "\x00\x00\x00\x00")
		case "50.10": // declare
			_ = method(c, channel, 50, 11, "\x01q\x00\x00\x00\x00\x00\x00\x00\x00")
		case "50.20": // bind
			_ = method(c, channel, 50, 21, "")
		case "60.20": // consume
			queue := int(p[6])
			tag := string(p[7+queue : 7+queue+1+int(p[7+queue])])
			_ = method(c, channel, 60, 21, tag)
			_ = method(c, channel, 60, 60, tag+"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00")
			_ = frame(c, 2, channel, []byte{0, 60, 0, 0, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 0})
			for body := make([]byte, 131072-8); sent < 64<<20; sent += len(body) {
				if frame(c, 3, channel, body) != nil {
					return sent
				}
			}
			return sent
		}
	}
}

// A message without end ends the session.
func TestMessageWithoutEnd(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	sent := make(chan int, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		sent <- endlessBroker(c)
	}()
	b, err := newBroker("amqp://u:p@"+l.Addr().String()+"/", "", &tls.Config{}, cloud.Allow{PlainHTTP: true, Loopback: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.session(context.Background(), testLog, func() {})
	const want = "the broker sends 4 MiB without a message that is complete"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the session ended with %v, not %s", err, want)
	}
	if n := <-sent; n >= 64<<20 {
		t.Errorf("the broker could send %d MiB", n>>20)
	}
}
