package render

import (
	"fmt"
	"net/netip"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

func writeListener(b *strings.Builder, l *model.Listener, floor model.TLSVersion) {
	fmt.Fprintf(b, "listener %s port %d %s%s\n", l.ID, l.Port, l.Protocol, field.When(len(l.Addresses) > 0, " at "+addressList(l.Addresses)))
	if v := l.ClientValidation; v != nil {
		fmt.Fprintf(b, "  clients by %s%s\n", List(v.Authorities), field.When(v.Optional, ", also without a certificate"))
	}
	writeClients(b, l.Clients, floor)
}

func addressList(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return List(texts)
}

// writeListenerStatus writes a listener of a Gateway, whose status has the fields of one of
// a ListenerSet.
func writeListenerStatus(b *strings.Builder, l gatewayv1.ListenerEntryStatus, unserved map[gatewayv1.SectionName]string) {
	var kinds []string
	for _, k := range l.SupportedKinds {
		kinds = append(kinds, string(k.Kind))
	}
	fmt.Fprintf(b, "  listener %s attached %d kinds %s\n", l.Name, l.AttachedRoutes, List(kinds))
	writeConditions(b, "    ", l.Conditions)
	if why, is := unserved[l.Name]; is {
		fmt.Fprintf(b, "    unserved: %s\n", why)
	}
}
