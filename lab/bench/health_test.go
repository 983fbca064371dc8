package bench

import (
	"encoding/hex"
	"net/netip"
	"testing"
	"time"

	"fairlead.dev/internal/model"
)

func TestTunnelledSYN(t *testing.T) {
	const (
		link  = "020000000001020000000002" + "0800"
		outer = "45000000000040004011" + "0000" + "0a4d0001" + "0a4d0002" // from 10.77.0.1 to 10.77.0.2
		udp   = "c00017c1" + "00000000"
		head  = "04400800" + "00000000" + "ff0f810300010000" + "0102030405060708" // an option of 16 bytes
		inner = "45000028000040003f06" + "0000" + "0a4d0101" + "cb007110"
		tcp   = "9c401f90" + "00000001" + "00000000" + "50"
	)
	for _, c := range []struct {
		name, frame string
		is          bool
	}{
		{"SYN", link + outer + udp + head + inner + tcp + "02" + "0400", true},
		{"SYN with ECN", link + outer + udp + head + inner + tcp + "c2" + "0400", true},
		{"ACK", link + outer + udp + head + inner + tcp + "10" + "0400", false},
		{"SYN-ACK", link + outer + udp + head + inner + tcp + "12" + "0400", false},
		{"UDP inside", link + outer + udp + head + "45000028000040003f11" + "0000" + "0a4d0101" + "cb007110" + tcp + "02" + "0400", false},
		{"another port", link + outer + "c00017c2" + "00000000" + head + inner + tcp + "02" + "0400", false},
		{"not tunnelled", link + inner + tcp + "02" + "0400", false},
		{"cut", link + outer + udp + head + inner + "9c40", false},
		{"nothing", "", false},
	} {
		frame, err := hex.DecodeString(c.frame)
		if err != nil {
			t.Fatal(err)
		}
		to, is := tunnelledSYN(frame)
		if is != c.is || is && to != netip.MustParseAddr("10.77.0.2") {
			t.Errorf("%s: %t, to %s", c.name, is, to)
		}
	}
}

func TestHealthBounds(t *testing.T) {
	for _, c := range healthChecks {
		if 2*c.Timeout > c.Interval {
			t.Errorf("%+v: the bound holds for timeouts of at most half of the interval", c)
		}
	}
	if got := healthChecks[1].bound(); got != 2100*time.Millisecond {
		t.Errorf("the bound is %s", got)
	}
	if is, said := model.PresumedCheck(), healthChecks[0]; !said.Default || said.Interval != is.Interval || said.Timeout != is.Timeout || said.Fall != int(is.Unhealthy) {
		t.Errorf("%+v is not the check that is made by default, %+v", said, is)
	}
	if got := rangeOf([]time.Duration{3e6, 1e6, 2e6}); got != (Range{1, 2, 3}) {
		t.Errorf("the range is %v", got)
	}
}
