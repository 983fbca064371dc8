package cloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/http2"

	"fairlead.dev/api/v1alpha1"
)

// Error is an error of an upstream, with its class.
type Error struct {
	// Reason of the condition Reachable, such as v1alpha1.ReasonUnauthorized.
	Reason string
	// RetryAfter is when the upstream wants to be asked again; 0: it does not say.
	RetryAfter time.Duration
	Err        error
}

// maxText bounds the text of an Error, in bytes.
const maxText = 1 << 10

// Error is at most a kilobyte of printable characters, whatever the upstream has written.
func (e *Error) Error() string { return Printable(e.Err.Error()) }

func (e *Error) Unwrap() error { return e.Err }

// Printable is the beginning of a text that an upstream may have written, in one line: without characters that move a
// cursor, begin a line or turn the direction of a text.
func Printable(text string) string {
	const more = "…"
	cut := len(text) > maxText
	if cut {
		text = text[:maxText-len(more)]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError:
			return -1
		case unicode.IsPrint(r):
			return r
		}
		return ' '
	}, text)
	if cut {
		text += more
	}
	return text
}

// ReasonOf is the class of an error: a reason of the condition Reachable.
func ReasonOf(err error) string {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return v1alpha1.ReasonUnreachable
}

// BadAnswer is the error of an answer that is too large, incomplete, or of another form.
func BadAnswer(format string, args ...any) *Error {
	return &Error{Reason: v1alpha1.ReasonBadAnswer, Err: fmt.Errorf(format, args...)}
}

// Timeout is the error of an API that does not answer in time, or too slowly.
func Timeout(format string, args ...any) *Error {
	return &Error{Reason: v1alpha1.ReasonTimeout, Err: fmt.Errorf(format, args...)}
}

// Classify gives an error its class, by the status of an answer (0: there was none) or by the error itself. An error
// that has a class already keeps it. Without an error it describes the status; it is nil for a status below 300.
func Classify(err error, status int) *Error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{Reason: e.Reason, RetryAfter: e.RetryAfter, Err: err}
	}
	if status == 0 || status < http.StatusMultipleChoices {
		if err == nil {
			return nil
		}
		return &Error{Reason: reasonOfError(err), Err: err}
	}
	if err == nil {
		err = fmt.Errorf("the API answers %d %s", status, http.StatusText(status))
	}
	return &Error{Reason: reasonOfStatus(status), Err: err}
}

func reasonOfStatus(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return v1alpha1.ReasonUnauthorized
	case status == http.StatusForbidden:
		return v1alpha1.ReasonForbidden
	case status == http.StatusTooManyRequests:
		return v1alpha1.ReasonThrottled
	case status == http.StatusRequestTimeout:
		return v1alpha1.ReasonTimeout
	case status >= http.StatusInternalServerError:
		return v1alpha1.ReasonServerError
	}
	return v1alpha1.ReasonBadAnswer
}

func reasonOfError(err error) string {
	switch {
	case isCertificate(err):
		return v1alpha1.ReasonCertificate
	case isRefusedIdentity(err):
		return v1alpha1.ReasonUnauthorized
	case isDial(err): // even one that takes too long
		return v1alpha1.ReasonUnreachable
	case isTimeout(err):
		return v1alpha1.ReasonTimeout
	case isIncomplete(err):
		return v1alpha1.ReasonBadAnswer
	}
	return v1alpha1.ReasonUnreachable
}

func isCertificate(err error) bool {
	var (
		verification *tls.CertificateVerificationError
		authority    x509.UnknownAuthorityError
		invalid      x509.CertificateInvalidError
		host         x509.HostnameError
		roots        x509.SystemRootsError
		constraint   x509.ConstraintViolationError
	)
	return errors.As(err, &verification) || errors.As(err, &authority) || errors.As(err, &invalid) ||
		errors.As(err, &host) || errors.As(err, &roots) || errors.As(err, &constraint)
}

// isRefusedIdentity says whether the server refuses our certificate. The package tls exports neither the alerts of
// RFC 8446, section 6.2, nor their type; those that speak of certificates say so in their text.
func isRefusedIdentity(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" {
		return false
	}
	text := op.Err.Error()
	return strings.Contains(text, "certificate") || strings.Contains(text, "access denied")
}

func isDial(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		errors.As(err, &timeout) && timeout.Timeout()
}

func isIncomplete(err error) bool {
	var stream http2.StreamError
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &stream)
}
