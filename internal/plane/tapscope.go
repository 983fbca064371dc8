package plane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"fairlead.dev/internal/console"
	"fairlead.dev/internal/model"
	"fairlead.dev/internal/near"
	"fairlead.dev/internal/snapshot"
)

// tappedKinds own routes of requests.
var tappedKinds = []string{string(snapshot.KindHTTPRoute), string(snapshot.KindGRPCRoute), string(snapshot.KindIngressRoute)}

// tapNote says why a tap may show nothing; empty: nothing is against it. A resource that does not exist is an error of the class
// console.ErrNone. Names of other namespaces than the filter's are told to nobody.
func (p *Plane) tapNote(ctx context.Context, f model.TapFilter) (string, error) {
	if f.Name == "" && f.Kind == "" && f.Namespace == "" && f.Host == "" {
		return "", nil
	}
	rows, err := p.Routes(ctx, RouteFilter{Namespace: f.Namespace})
	if err != nil {
		return "", err
	}
	stored := ""
	if f.Name != "" {
		if stored, err = question(ctx, p, func(l *loop) string {
			for _, kind := range tappedKinds {
				k := snapshot.Key{Kind: snapshot.Kind(kind), Name: snapshot.Name{Namespace: f.Namespace, Name: f.Name}}
				if isKind(f.Kind, kind) && l.snapshot.Get(k) != nil {
					return kind
				}
			}
			return ""
		}); err != nil {
			return "", err
		}
	}
	return noteOn(rows, f, stored)
}

func isKind(asked, kind string) bool { return asked == "" || strings.EqualFold(asked, kind) }

// noteOn is what is said of a filter, by the published routes of its namespace, and the kind of the resource of that name in the
// API; empty: there is none.
func noteOn(rows []model.RouteRow, f model.TapFilter, stored string) (string, error) {
	if !slices.ContainsFunc(tappedKinds, func(kind string) bool { return isKind(f.Kind, kind) }) {
		return "", console.None(fmt.Sprintf("kind %q owns no routes of requests: want %s or %s%s", f.Kind, strings.Join(tappedKinds[:2], ", "), tappedKinds[2], near.DidYouMean(f.Kind, tappedKinds)))
	}
	owned, hosts := false, []string{}
	var owners []string
	for _, r := range rows {
		o := r.Owner
		owners = append(owners, o.Namespace+"/"+o.Name)
		if (f.Name == "" || f.Name == o.Name) && isKind(f.Kind, o.Kind) {
			owned = true
			hosts = append(hosts, r.Host)
		}
	}
	asked := strings.TrimPrefix(f.Namespace+"/"+f.Name, "/")
	switch {
	case f.Name != "" && !owned && stored != "":
		return fmt.Sprintf("no route of %s %s is published, so no request follows it: 'fairlead status' says why", stored, asked), nil
	case f.Name != "" && !owned:
		what := strings.Join(tappedKinds[:2], ", ") + " or " + tappedKinds[2]
		if f.Kind != "" {
			what = f.Kind
		}
		return "", console.None(fmt.Sprintf("there is no %s %s%s", what, asked, near.DidYouMean(asked, owners)))
	case !owned && f.Namespace != "":
		return fmt.Sprintf("no route of namespace %s is published", f.Namespace), nil
	case f.Host != "" && !slices.ContainsFunc(hosts, func(host string) bool { return isAsked(f.Host, host) }):
		return fmt.Sprintf("no route for host %s is published, so its requests are answered 404%s", f.Host, near.DidYouMean(f.Host, hosts)), nil
	}
	return "", nil
}

// isAsked says whether requests that ask for a host, or for one below "*.example.com", may come to a virtual host.
func isAsked(asked, host string) bool {
	below, wild := strings.CutPrefix(asked, "*")
	return MatchesHost(asked, host, false) || wild && (strings.HasSuffix(host, below) || strings.HasPrefix(host, "*") && strings.HasSuffix(below, host[1:]))
}
