package bgp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	packet "github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// header reads the header of a message: its type, and its length with the header (RFC 4271, 6.1).
func header(raw []byte) (kind uint8, length int, err error) {
	malformed := func(subcode uint8, data []byte, format string, args ...any) error {
		return packet.NewMessageError(packet.BGP_ERROR_MESSAGE_HEADER_ERROR, subcode, data, fmt.Sprintf(format, args...))
	}
	for _, b := range raw[:16] {
		if b != 0xff {
			return 0, 0, malformed(packet.BGP_ERROR_SUB_CONNECTION_NOT_SYNCHRONIZED, nil, "it does not begin with a marker")
		}
	}
	length, kind = int(binary.BigEndian.Uint16(raw[16:])), raw[18]
	least, most := packet.BGP_HEADER_LENGTH, packet.BGP_MAX_MESSAGE_LENGTH
	switch kind {
	case packet.BGP_MSG_OPEN:
		least += 10
	// Each OPEN of ours says that the others may be longer (RFC 8654).
	case packet.BGP_MSG_UPDATE:
		least, most = least+4, packet.BGP_MAX_EXTENDED_MESSAGE_LENGTH
	case packet.BGP_MSG_NOTIFICATION:
		least, most = least+2, packet.BGP_MAX_EXTENDED_MESSAGE_LENGTH
	case packet.BGP_MSG_KEEPALIVE:
		most = least
	case packet.BGP_MSG_ROUTE_REFRESH: // its own error code is for what is too short (RFC 7313, 5)
		most = packet.BGP_MAX_EXTENDED_MESSAGE_LENGTH
	default:
		// The length first: RFC 4271 has both, and an absurd one says more of what is at the other end.
		if length >= least && length <= most {
			return 0, 0, malformed(packet.BGP_ERROR_SUB_BAD_MESSAGE_TYPE, raw[18:19], "it says that it is of type %d", kind)
		}
	}
	if length < least || length > most {
		return 0, 0, malformed(packet.BGP_ERROR_SUB_BAD_MESSAGE_LENGTH, raw[16:18], "a message of type %d says that it has %d bytes", kind, length)
	}
	return kind, length, nil
}

// read returns the next message. It waits at most so long, 0 being for ever, and until the connection's context ends.
func (c *connection) read(wait time.Duration) (m *packet.BGPMessage, err error) {
	var deadline time.Time
	if wait > 0 {
		deadline = time.Now().Add(wait)
	}
	_ = c.conn.SetReadDeadline(deadline)
	if err := c.ctx.Err(); err != nil { // it may have ended before the deadline was set
		return nil, err
	}
	head := make([]byte, packet.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(c.reader, head); err != nil {
		return nil, err
	}
	kind, length, err := header(head)
	if err != nil {
		return nil, err
	}
	body := make([]byte, length-packet.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(c.reader, body); err != nil {
		return nil, err
	}
	m, err = decode(kind, body, c.agreed.fourOctets)
	if err != nil && m != nil && harmless(err) {
		var malformed *packet.MessageError
		errors.As(err, &malformed)
		kind := fmt.Sprintf("malformed %d/%d", malformed.TypeCode, malformed.SubTypeCode)
		c.p.often.Warn(kind, "ignored a malformed UPDATE", "error", err, "means", notificationName(malformed.TypeCode, malformed.SubTypeCode))
		return packet.NewBGPUpdateMessage(nil, nil, nil), nil
	}
	return m, err
}

// decode reads the body of a message. A peer must not be able to end the agent, whatever the decoder makes of its bytes.
func decode(kind uint8, body []byte, fourOctets bool) (m *packet.BGPMessage, err error) {
	defer func() {
		if r := recover(); r != nil {
			m, err = nil, packet.NewMessageError(packet.BGP_ERROR_MESSAGE_HEADER_ERROR, 0, nil, fmt.Sprintf("decoding it failed: %v", r))
		}
	}()
	h := &packet.BGPHeader{Len: uint16(packet.BGP_HEADER_LENGTH + len(body)), Type: kind}
	if kind == packet.BGP_MSG_OPEN {
		o := &theirOpen{}
		if err := o.DecodeFromBytes(body); err != nil {
			return nil, err
		}
		return &packet.BGPMessage{Header: *h, Body: o}, nil
	}
	return packet.ParseBGPBody(h, body,
		&packet.MarshallingOption{Use2ByteAS: !fourOctets})
}
