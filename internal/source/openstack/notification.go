package openstack

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

const (
	defaultTopic = "notifications"

	brokerTimeout   = 10 * time.Second // of a connection
	brokerHeartbeat = 10 * time.Second
	// brokerRescan is how often exchanges are looked for that were not there: services make
	// theirs with their first message.
	brokerRescan = time.Minute
)

// exchanges are those of the services whose notifications can be about load balancers:
// control_exchange of oslo.messaging, which is Octavia's own name, the default of services
// that set none, and Neutron's for LBaaS v2.
var exchanges = []string{"octavia", "openstack", "neutron"}

// broker is the RabbitMQ with a cloud's notifications. A source polls when one comes. It
// believes nothing of their content, and without them it polls anyway.
type broker struct {
	url    model.Redacted
	name   string // host and port
	topic  string
	dialer *net.Dialer
	config amqp.Config
}

func newBroker(address, topic string, secure *tls.Config, allow cloud.Allow) (*broker, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return nil, errors.New("notifications: it is no URL")
	case u.Scheme != "amqp" && u.Scheme != "amqps" || u.Host == "":
		return nil, errors.New("notifications: it must begin with amqps:// or amqp:// and a host")
	case u.Scheme == "amqp" && !allow.PlainHTTP:
		return nil, fmt.Errorf("notifications: %s without TLS (amqp://) is refused: %s does not name plain-http", u.Host, cloud.AllowFlag)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("notifications: the URL must have no query or fragment") // they may name files
	}
	if topic == "" {
		topic = defaultTopic
	}
	return &broker{
		url: model.Redacted(address), name: u.Host, topic: topic, dialer: cloud.Dialer(brokerTimeout, allow),
		config: amqp.Config{
			TLSClientConfig: secure.Clone(), Heartbeat: brokerHeartbeat, Properties: amqp.Table{"connection_name": "fairlead"},
		},
	}, nil
}

// listen calls event for each notification about load balancers until ctx is done. A broker
// that is away is tried again.
func (b *broker) listen(ctx context.Context, log *slog.Logger, event func()) {
	for failures := 1; ctx.Err() == nil; failures++ {
		joined, err := b.session(ctx, log, event)
		if ctx.Err() != nil {
			return
		}
		if joined {
			failures = 1
		}
		if failures == 1 {
			log.Warn("no notifications; changes are found by polling", "broker", b.name, "error", err)
		}
		select {
		case <-time.After(retries.After(failures, nil)):
		case <-ctx.Done():
		}
	}
}

// unfinishedBytes bounds what is received without a message that is complete: the library keeps
// all parts of one until the last has come.
const unfinishedBytes = 4 << 20

// bounded is a connection that fails when too much has come since the last message.
type bounded struct {
	net.Conn
	since *atomic.Int64
}

func (c bounded) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.since.Add(int64(n)) > unfinishedBytes {
		return 0, fmt.Errorf("the broker sends %d MiB without a message that is complete", unfinishedBytes>>20)
	}
	return n, err
}

// session is one connection. joined: a queue was bound.
func (b *broker) session(ctx context.Context, log *slog.Logger, event func()) (joined bool, _ error) {
	config := b.config
	config.TLSClientConfig = config.TLSClientConfig.Clone() // the library writes into it
	var since atomic.Int64                                  // bytes since the last message
	config.Dial = func(network, address string) (net.Conn, error) {
		conn, err := b.dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// The library clears it after the handshake.
		return bounded{conn, &since}, conn.SetDeadline(time.Now().Add(brokerTimeout))
	}
	connection, err := amqp.DialConfig(string(b.url), config)
	if err != nil {
		return false, err
	}
	closed := connection.NotifyClose(make(chan *amqp.Error, 1))
	defer func() { _ = connection.CloseDeadline(time.Now().Add(time.Second)) }()
	stop := context.AfterFunc(ctx, func() { _ = connection.CloseDeadline(time.Now().Add(time.Second)) })
	defer stop()

	channel, err := connection.Channel()
	if err != nil {
		return false, err
	}
	// A queue of our own, so that other consumers keep theirs. It goes with the connection, and
	// old messages go first: each of them says only that something changed.
	queue, err := channel.QueueDeclare("", false, true, true, false, amqp.Table{"x-max-length": 100, "x-overflow": "drop-head"})
	if err != nil {
		return false, fmt.Errorf("declare a queue: %w", err)
	}
	messages, err := channel.Consume(queue.Name, "", true, true, false, false, nil)
	if err != nil {
		return false, fmt.Errorf("consume: %w", err)
	}
	bound := map[string]bool{}
	rescan := time.NewTimer(0)
	defer rescan.Stop()
	for {
		select {
		case <-rescan.C:
			for _, exchange := range exchanges {
				if bound[exchange] {
					continue
				}
				switch err := bind(connection, queue.Name, exchange, b.topic+".#"); {
				case err == nil:
					bound[exchange] = true
					if !joined {
						log.Info("listening to notifications", "broker", b.name, "exchange", exchange)
						event() // for what changed before
					}
					joined = true
				case connection.IsClosed():
					return joined, err
				}
			}
			if !joined {
				log.Info("the broker has no exchange with notifications yet", "broker", b.name, "exchanges", exchanges)
			}
			rescan.Reset(brokerRescan)
		case m, ok := <-messages:
			since.Store(0)
			if !ok {
				messages = nil
				continue
			}
			if aboutLoadBalancers(m.Body) {
				event()
			}
		case err := <-closed:
			if err == nil {
				return joined, errors.New("the connection is closed")
			}
			return joined, err
		}
	}
}

// bind binds a queue to an exchange, if there is one. A channel ends with its first error, so
// each attempt has its own.
func bind(connection *amqp.Connection, queue, exchange, key string) error {
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	defer func() { _ = channel.Close() }()
	return channel.QueueBind(queue, key, exchange, false, nil)
}

// aboutLoadBalancers reports whether a notification can be about a change of a load balancer:
// events of Octavia's worker ("octavia.loadbalancer.update.end"), and of the audit of its API
// and of Neutron's, which name the path of the request. Audits of reads come in great numbers.
func aboutLoadBalancers(body []byte) bool {
	if bytes.Contains(body, []byte("octavia.loadbalancer.")) {
		return true
	}
	return bytes.Contains(body, []byte("/lbaas/")) && !bytes.Contains(body, []byte("read/list")) &&
		!bytes.Contains(body, []byte(`"read"`)) && !bytes.Contains(body, []byte(`\"read\"`))
}
