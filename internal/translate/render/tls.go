package render

import (
	"cmp"
	"fmt"
	"strings"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/translate/field"
)

// writeTLSHost writes the version that holds where the operator allows none below floor.
func writeTLSHost(b *strings.Builder, h *model.TLSHost, floor model.TLSVersion) {
	fmt.Fprintf(b, "tls %s %s", h.Listener, h.Host)
	switch {
	case len(h.Certificates) > 0:
		fmt.Fprintf(b, " certificate %s", listText(h.Certificates))
	case len(h.TCP) > 0:
		b.WriteString(" handed on as it is")
	default:
		b.WriteString(" closed")
	}
	fmt.Fprintf(b, "%s of %s\n", field.When(h.MinVersion != "", " from TLS "+string(max(h.MinVersion, floor))), h.Owner)
	for _, w := range h.TCP {
		fmt.Fprintf(b, "  -> %d %s\n", w.Weight, cmp.Or(string(w.Group), "broken"))
	}
}

func writeBackendTLS(b *strings.Builder, t *model.BackendTLS) {
	b.WriteString("  tls")
	fmt.Fprintf(b, "%s", field.When(t.ServerName != "", " to "+t.ServerName))
	for _, n := range t.Names {
		b.WriteString(" name " + n.DNS + n.URI)
	}
	switch {
	case t.Unverified:
		b.WriteString(" unverified")
	case len(t.Authorities) > 0:
		fmt.Fprintf(b, " by %s", listText(t.Authorities))
	default:
		b.WriteString(" by the system's authorities")
	}
	fmt.Fprintf(b, "%s\n", field.When(t.Certificate != "", " showing "+string(t.Certificate)))
}
