package console

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"

	v1 "fairlead.dev/internal/console/v1"
)

// ownHost refuses requests for somebody else's name at a loopback address. They come of browsers: a page
// whose name was made to resolve to 127.0.0.1 may read what is answered there (DNS rebinding). Who reaches
// another address may ask anyway.
func ownHost(next http.Handler) http.Handler {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = ""
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case crossSite(r):
			http.Error(w, "this console does not answer pages of others", http.StatusForbidden)
			return
		case !isLoopback(r) || isOwn(r.Host, hostname):
			next.ServeHTTP(w, r)
			return
		}
		http.Error(w, "this console is at a loopback address and has no name: ask for localhost, or for the address", http.StatusForbidden)
	})
}

// fromLoopback answers callers on this machine only: they need no credential.
func fromLoopback(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if at, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !at.Addr().Unmap().IsLoopback() {
			http.Error(w, "this port answers callers on its own machine only: ask the read API, by a kubeconfig (fairlead --help: --kubeconfig), or URL and authority in config map fairlead-system/"+v1.ReadConfigMap, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback says whether a request came to a loopback address.
func isLoopback(r *http.Request) bool {
	at, is := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return is && at.IP.IsLoopback()
}

// isOwn says whether a Host header is an address, or a name of the machine itself.
func isOwn(host, hostname string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	return name == "localhost" || strings.HasSuffix(name, ".localhost") || hostname != "" && name == strings.ToLower(hostname)
}
