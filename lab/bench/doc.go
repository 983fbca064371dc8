// Package bench measures what Fairlead promises: how soon a plane is ready and how
// much memory it takes, what a change costs its subscribers, what a translation
// costs, how soon a change in an upstream is followed (discovery*.go), and what metrics, top, taps and the
// read API cost, and how true they are (seeing*.go).
//
// It refuses to judge its figures and to print them: it returns them, and
// lab/report writes them down with the machine that they were measured on.
// Invariant: a figure is measured on the real thing (the real binary, the real
// engine, a real Envoy), and every result says the sizes it holds for.
package bench
