package model

import (
	"net/netip"
	"testing"
)

func TestReachable(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": true, "192.0.2.1": true, "2001:db8::1": true, "fd00::1": true, "100.64.0.1": true,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "169.254.1.1": false, "fe80::1": false, "fe80::1%eth0": false,
		"224.0.0.1": false, "ff02::1": false, "0.0.0.0": false, "::": false, "255.255.255.255": false, "fd00::1%eth0": false,
		"169.254.169.254": false, "fd00:ec2::254": false, "fd20:ce::254": false, "168.63.129.16": false, "fd00:ec2::253": true,
		"64:ff9b::a9fe:a9fe": false, "64:ff9b::7f00:1": false, "64:ff9b::a00:1": true, "2002:a9fe:a9fe::1": false, "2002:a00:1::1": true, "2002:7f00:1::": false,
		"64:ff9b:1::a9fe:a9fe": false, "64:ff9b:1::a00:1": true,
	} {
		if got := Reachable(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
