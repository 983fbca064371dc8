package crd_test

import (
	"context"
	"io/fs"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"fairlead.dev/deploy/crd"
)

// TestPeersShowWhatIsWrongFirst holds that the column REASON of `kubectl get bgppeers` tells what is to be mended, not what follows from it.
func TestPeersShowWhatIsWrongFirst(t *testing.T) {
	b, err := fs.ReadFile(crd.Fairlead(), "fairlead.dev_bgppeers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(b, &definition); err != nil {
		t.Fatal(err)
	}
	table, err := tableconvertor.New(definition.Spec.Versions[0].AdditionalPrinterColumns)
	if err != nil {
		t.Fatal(err)
	}
	condition := func(conditionType, status, reason string) any {
		return map[string]any{"type": conditionType, "status": status, "reason": reason}
	}
	for want, conditions := range map[string][]any{
		"Conflict":   {condition("Accepted", "False", "Conflict"), condition("Established", "False", "NoMachines")},
		"Invalid":    {condition("Accepted", "False", "Invalid"), condition("Established", "True", "Established")},
		"NoMachines": {condition("Accepted", "True", "Accepted"), condition("Established", "False", "NoMachines")},
		"":           {condition("Accepted", "True", "Accepted"), condition("Established", "True", "Established")},
	} {
		peer := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "fairlead.dev/v1alpha1", "kind": "BGPPeer", "metadata": map[string]any{"name": "tor"}, "status": map[string]any{"conditions": conditions},
		}}
		shown, err := table.ConvertToTable(context.Background(), peer, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, column := range shown.ColumnDefinitions {
			if column.Name != "Reason" {
				continue
			}
			if got, _ := shown.Rows[0].Cells[i].(string); got != want {
				t.Errorf("REASON is %q, want %q", got, want)
			}
		}
	}
}

// TestPeersAreChecked holds that the API refuses a BGPPeer that the planes would refuse, and says what to do instead.
func TestPeersAreChecked(t *testing.T) {
	const (
		external = "address: 192.0.2.1, localASN: 65001, peerASN: 65000, "
		internal = "address: 192.0.2.1, localASN: 65000, peerASN: 65000, "
	)
	for _, c := range []struct{ spec, want string }{
		{external, ""},
		{external + "port: 1179, ttl: 2, passwordSecret: tor, holdTime: 90s, keepaliveTime: 30s, connectRetryTime: 1500ms, bfd: {interval: 50ms}", ""},
		{external + "families: [IPv4, IPv6], nextHopIPv4: 192.0.2.9, nextHopIPv6: '2001:db8::9', med: 0, prepend: 16, holdTime: 1m30s", ""},
		{internal + "localPreference: 200, prepend: 0, gracefulRestart: {disabled: true}, holdTime: 0s", ""},
		{external + "communities: ['0:0', '65535:65535', '4294967295:0:4294967295', no-export, no-advertise, graceful-shutdown, blackhole]", ""},
		{"address: '2001:db8::1', localASN: 4200000000, peerASN: 1", ""},
		{"address: 'fe80::1%eth0', localASN: 65001, peerASN: 65000", ""},
		{"address: 169.254.0.1, localASN: 65001, peerASN: 65000", ""},

		{external + "ttlSecurityHops: 1, connection: Both, role: Customer, strictRole: true, vrf: red, bfd: {mode: SingleHop}", ""},
		{external + "sourceAddress: 192.0.2.0/24, nextHopIPv4: 10.0.0.0/8, nextHopIPv6: '2001:db8::/64'", ""},
		{internal + "sourceAddress: 192.0.2.7, ttlSecurityHops: 254", ""},

		{"interface: eth1, localASN: 65001, peerASN: 65000, ttlSecurityHops: 1, vrf: red", ""},
		{"localASN: 65001, peerASN: 65000", "give either address, or interface"},
		{external + "interface: eth1", "give either address, or interface"},
		{"address: '', interface: eth1, localASN: 65001, peerASN: 65000", "at least 1 chars long"},
		{"interface: a/b, localASN: 65001, peerASN: 65000", "should match"},
		{"interface: '..', localASN: 65001, peerASN: 65000", "is not a valid interface name"},
		{"interface: a-name-of-sixteen, localASN: 65001, peerASN: 65000", "should match"},
		{"interface: eth1, localASN: 65001, peerASN: 65000, ttl: 2", "ttl is for peers with an address"},
		{"interface: eth1, localASN: 65001, peerASN: 65000, ttlSecurityHops: 2", "ttlSecurityHops must be 1"},
		{"interface: eth1, localASN: 65001, peerASN: 65000, sourceAddress: '2001:db8::1'", "sourceAddress is for peers with an address"},

		{"address: router, localASN: 65001, peerASN: 65000", "must be an IPv4 or IPv6 address"},
		{"address: 192.0.2.300, localASN: 65001, peerASN: 65000", "must be an IPv4 or IPv6 address"},
		{"address: '::ffff:192.0.2.1', localASN: 65001, peerASN: 65000", "must be an IPv4 or IPv6 address"},
		{"address: 0.0.0.0, localASN: 65001, peerASN: 65000", "must be the address of one machine"},
		{"address: 'ff02::1%eth0', localASN: 65001, peerASN: 65000", "must be the address of one machine"},
		{"address: 224.0.0.1, localASN: 65001, peerASN: 65000", "must be the address of one machine"},
		{"address: 'fe80::1', localASN: 65001, peerASN: 65000", "a link-local IPv6 address needs its interface"},
		{"address: '192.0.2.1%eth0', localASN: 65001, peerASN: 65000", "a link-local IPv6 address needs its interface"},
		{"address: '2001:db8::1%eth0', localASN: 65001, peerASN: 65000", "a link-local IPv6 address needs its interface"},
		{"address: 192.0.2.1, localASN: 65001, peerASN: 23456", "is a reserved AS (RFC 6793, RFC 7300)"},
		{"address: 192.0.2.1, localASN: 65535, peerASN: 65000", "is a reserved AS (RFC 6793, RFC 7300)"},
		{"address: 192.0.2.1, localASN: 4294967295, peerASN: 65000", "is a reserved AS (RFC 6793, RFC 7300)"},
		{external + "localPreference: 200", "localPreference is for internal peers: localASN and peerASN differ"},
		{internal + "prepend: 1", "prepend is for external peers: localASN and peerASN are the same"},
		{internal + "ttl: 2", "ttl is for external peers"},
		{external + "communities: ['65000:65536']", "numbers up to 65535"},
		{external + "communities: ['99999:1']", "numbers up to 65535"},
		{external + "communities: ['1:2:4294967296']", "numbers up to 4294967295"},
		{external + "communities: ['065:1']", "without leading zeros"},
		{external + "communities: [internet]", "should match"},
		{external + "med: 4294967296", "should be less than or equal to"},
		{external + "holdTime: 2s", "holdTime must be 0s (never) or from 3s to 65535s"},
		{external + "holdTime: 4500ms", "holdTime must be whole seconds"},
		{external + "keepaliveTime: 1500ms", "must be whole seconds"},
		{external + "keepaliveTime: 9s", "keepaliveTime must be shorter than holdTime"},
		{external + "holdTime: 0s, keepaliveTime: 3s", "holdTime 0s turns keepalives off"},
		{external + "connectRetryTime: 500ms", "must be between 1s and 1h"},
		{external + "gracefulRestart: {restartTime: 1500ms}", "must be whole seconds"},
		{external + "bfd: {interval: 1ms}", "must be between 10ms and 60s"},
		{external + "nextHopIPv4: '2001:db8::9'", "must be an IPv4 address"},
		{external + "nextHopIPv6: 192.0.2.9", "must be an IPv6 address"},
		{external + "nextHopIPv6: 'fe80::1'", "must be an IPv6 address"},
		{external + "nextHopIPv4: '2001:db8::/64'", "an IPv4 network in which each machine has one"},
		{external + "ttl: 2, ttlSecurityHops: 1", "ttl and ttlSecurityHops exclude each other"},
		{external + "ttlSecurityHops: 255", "should be less than or equal to"},
		{internal + "role: Peer", "role is for external peers"},
		{external + "role: King", "upported value"},
		{external + "strictRole: true", "strictRole needs role"},
		{external + "connection: Never", "upported value"},
		{external + "sourceAddress: here", "must be an address like 192.0.2.7, or a network"},
		{external + "sourceAddress: '2001:db8::/64'", "sourceAddress must be of the same family as address"},
		{external + "vrf: a/b", "should match"},
		{external + "bfd: {mode: Bounce}", "upported value"},
		{external + "maxPrefixes: 1, maxPrefixesAction: Panic", "upported value"},
		{external + "holdTime: abc, keepaliveTime: 3s", "spec.holdTime: Invalid value: \"abc\": must be a duration, such as 9s, 1500ms or 1m30s"},
		{external + "keepaliveTime: 3", "spec.keepaliveTime"},
		{external + "bfd: {interval: soon}", "must be a duration, such as 9s"},
	} {
		problems := judge(t, "bgppeers", strings.TrimSuffix(c.spec, ", "))
		switch {
		case c.want == "" && len(problems) > 0:
			t.Errorf("{%s} is refused: %v", c.spec, problems.ToAggregate())
		case c.want != "" && (len(problems) == 0 || !strings.Contains(problems.ToAggregate().Error(), c.want)):
			t.Errorf("{%s}: got %v, want %q", c.spec, problems.ToAggregate(), c.want)
		case c.want != "" && strings.Contains(problems.ToAggregate().Error(), "conversion error"):
			t.Errorf("{%s} is refused by the way rules are evaluated: %v", c.spec, problems.ToAggregate())
		}
	}
	if problems := judge(t, "addresspools", "addresses: [203.0.113.0/24], bgp: {communities: ['1:65536']}"); len(problems) == 0 || !strings.Contains(problems.ToAggregate().Error(), "numbers up to 65535") {
		t.Errorf("an AddressPool's community: got %v", problems.ToAggregate())
	}
}
