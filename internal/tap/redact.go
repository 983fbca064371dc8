package tap

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"fairlead.dev/internal/model"
)

// Redacted stands for a credential.
const Redacted = "[redacted]"

const (
	// maxPath and maxText bound the texts of a record, bytes.
	maxPath = 512
	maxText = 256
)

// credentialHeaders are headers whose whole value is a credential.
var credentialHeaders = map[string]bool{
	"authorization": true, "proxy-authorization": true, "cookie": true, "set-cookie": true, "x-api-key": true,
	"x-auth-token": true, "x-amz-security-token": true, "x-csrf-token": true, "x-vault-token": true, "api-key": true,
}

// credentialWords are in the names of parameters whose values are credentials, such as access_token and X-Amz-Signature.
var credentialWords = []string{"token", "password", "passwd", "pwd", "secret", "key", "signature", "credential", "auth", "session", "jwt", "assertion"}

// credentialNames are whole names of such parameters.
var credentialNames = map[string]bool{"sig": true, "code": true, "pass": true, "sid": true, "otp": true, "pin": true, "state": true, "nonce": true}

// IsCredential says that the value of a header or parameter of this name is a credential.
func IsCredential(name string) bool {
	name = strings.ToLower(name)
	return credentialHeaders[name] || credential(name)
}

// Redact takes credentials out of a record, in place, and cuts long texts. What it leaves is UTF-8 and no longer than said
// above.
func Redact(r *model.TapRecord) {
	r.Path = cut(redactPath(cut(r.Path, 8*maxPath)), maxPath)
	for _, headers := range []map[string]string{r.Headers, r.ResponseHeaders} {
		for name, value := range headers {
			headers[name] = redactHeader(strings.ToLower(name), value)
		}
	}
	for _, text := range []*string{&r.Route, &r.Host, &r.Method, &r.Details, &r.RequestID, &r.Client, &r.Backend, (*string)(&r.Group)} {
		*text = cut(*text, maxText)
	}
}

func redactHeader(name, value string) string {
	switch {
	case credentialHeaders[name] || credential(name):
		return Redacted
	case name == "referer" || name == "location" || name == "origin":
		return cut(redactPath(cut(value, 8*maxText)), maxText)
	}
	return cut(value, maxText)
}

// redactPath takes the values of parameters that are credentials out of a path or URL, and the user of a URL. Parameters may
// be anywhere, and servers differ in what they take for a separator: all are.
func redactPath(path string) string {
	if scheme, rest, is := strings.Cut(path, "://"); is {
		end := len(rest)
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			end = i
		}
		if at := strings.LastIndexByte(rest[:end], '@'); at >= 0 {
			path = scheme + "://" + Redacted + rest[at:]
		}
	}
	var out strings.Builder
	ends := "/?&#" // of the value of a parameter
	for len(path) > 0 {
		pair, separator := path, ""
		if end := strings.IndexAny(path, "/?&;#"); end >= 0 {
			pair, separator = path[:end], path[end:end+1]
		}
		path = path[len(pair)+len(separator):]
		if name, _, is := strings.Cut(pair, "="); is && credential(name) {
			pair = name + "=" + Redacted
			if separator != "" && !strings.Contains(ends, separator) { // the value goes on
				end := strings.IndexAny(path, ends)
				if end < 0 {
					end = len(path)
				}
				path, separator = path[end:], ""
			}
		}
		out.WriteString(pair)
		out.WriteString(separator)
		if separator == "?" || separator == "#" {
			ends = "&#" // values may have the others
		}
	}
	return out.String()
}

// credential says whether the value of something with that name is a credential. A name may be escaped, more than once.
func credential(name string) bool {
	for range 3 {
		plain, err := url.QueryUnescape(name)
		if err != nil || plain == name {
			break
		}
		name = plain
	}
	name = strings.ToLower(name)
	if credentialNames[name] {
		return true
	}
	for _, word := range credentialWords {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// cut cuts a text to so many bytes, between characters, and replaces what is no UTF-8.
func cut(text string, most int) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= most {
		return text
	}
	end := most - len("...")
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}
