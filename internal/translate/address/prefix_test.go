package address

import (
	"fmt"
	"strings"
	"testing"
)

func TestParsePrefixes(t *testing.T) {
	for text, want := range map[string]string{
		"": "[]", " , ": "[]", "10.0.0.0/8": "[10.0.0.0/8]", "0.0.0.0/0,::/0": "[0.0.0.0/0 ::/0]",
		" 2001:db8::/32 , 10.0.0.0/8,192.0.2.1,10.0.0.0/8": "[10.0.0.0/8 192.0.2.1/32 2001:db8::/32]",
	} {
		if got, err := ParsePrefixes(text); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"x": `"x" is neither a CIDR like "10.0.0.0/8" nor an address`, "10.0.0.0/8 x": "is neither", "10.0.0.0/33": "is neither", "10.0.0.1-10.0.0.9": "is neither",
		"::ffff:10.0.0.0/104": "is neither", "::ffff:10.0.0.1": "write 10.0.0.1", "fe80::1%eth0": "is not an IP address",
		"10.0.0.1/8": "is 10.0.0.0/8 meant?", "10.0.0.0/8,2001:db8::1/32,x": "is 2001:db8::/32 meant?",
	} {
		if got, err := ParsePrefixes(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", text, got, err, want)
		}
	}
}
