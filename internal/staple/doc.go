// Package staple keeps OCSP responses (RFC 6960) at hand for certificates, so that servers
// can show them with the certificate and clients need not ask (stapling, RFC 6066, 8).
//
// It asks the responder that a certificate names, checks the answer, keeps it until its
// time is over, and asks again when half of that has passed. It refuses to keep what is not
// good, to follow redirects, and to speak with this machine itself or with the addresses of
// its link: certificates are the users', and say where the plane should ask.
//
// Invariant: a response belongs to the very chain that it is asked for with; a responder
// that fails, lies or is slow takes nothing from anybody.
package staple
