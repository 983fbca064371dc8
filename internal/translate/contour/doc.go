// Package contour compiles IngressRoutes of Contour. A root has a virtual host and may delegate path
// prefixes to other IngressRoutes; this room walks such a tree, refuses cycles and conflicts, and
// puts the entries of the tree among the candidates for its host (package host).
package contour
