package translate

import (
	"net/netip"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/translate/address"
	"fairlead.dev/internal/translate/condition"
	"fairlead.dev/internal/translate/input"
	"fairlead.dev/internal/translate/status"
)

// Of the rooms below, others see only the names of this file.
type (
	// Config is what an operator decides about translation. The zero value is usable.
	Config = input.Config
	// Pins are things that stay in use although no resource may ask for them any more.
	Pins = input.Pins
	// Status is what one resource should show.
	Status = status.Status
	// PoolUse is how many addresses of a family an AddressPool has assigned, and has left.
	PoolUse = status.PoolUse
	// Hold says why a resource is not programmed although nothing of it is invalid.
	Hold = condition.Hold
)

// ControllerName and IngressClass are the names by which resources are ours, unless the configuration says others.
const (
	ControllerName = input.ControllerName
	IngressClass   = input.IngressClass
)

// ParsePrefixes reads CIDRs and addresses that commas separate: "10.0.0.0/8, 2001:db8::1". Of several mistakes
// the error names the first.
func ParsePrefixes(text string) ([]netip.Prefix, error) { return address.ParsePrefixes(text) }

// Features returns what we support of the Gateway API, sorted.
func Features() []gatewayv1.FeatureName { return status.Features() }
