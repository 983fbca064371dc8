package v1

import "time"

// Drop is a packet that was dropped.
type Drop struct {
	At        time.Time `json:"at"`
	Reason    string    `json:"reason"`
	Interface string    `json:"interface"` // where it came from
	Length    int       `json:"length"`    // of the packet, bytes
	Data      []byte    `json:"data"`      // the beginning of the frame
}
