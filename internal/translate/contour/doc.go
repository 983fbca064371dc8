// Package contour compiles IngressRoutes of Contour. A root has a virtual host and may delegate path
// prefixes to other IngressRoutes; this room walks such a tree, refuses cycles and conflicts, and
// puts the entries of the tree among the candidates for its host (package host).
//
// Read the files in this order; each calls only later ones:
//   - ingressroute.go: the tables, and one IngressRoute compiled for itself
//   - route.go, tcpproxy.go, tls.go: the parts of its spec
//   - service.go, health.go: the services that these parts name
//   - compiler.go: what all parts use to report problems
//   - tree.go: a root with everything that it delegates to
//   - walk.go, treesize.go: the walk through such a tree, and its bounds
//   - prefixes.go, class.go: the longest prefix of a path; the class of an IngressRoute
package contour
