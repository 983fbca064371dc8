package bundle

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A tail that begins inside a key has its end alone.
func TestATailThatBeginsInsideAPrivateKey(t *testing.T) {
	const planted = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg"
	key := "-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat(planted+"\n", 30) + "-----END RSA PRIVATE KEY-----"
	for _, c := range []struct{ name, key string }{
		{"lines", key},
		{"escaped", strings.ReplaceAll(key, "\n", `\n`)},
		{"escaped and broken", strings.ReplaceAll(key[:200], "\n", `\n`) + "\n" + strings.ReplaceAll(key[200:], "\n", `\n`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "envoy.log")
			const last = "\nthe last line\n"
			fill := strings.Repeat("a line\n", 1000)
			// The tail begins in the middle of BEGIN's line.
			behind := strings.Repeat("x", tailBytes-(len(c.key)-10)-len(fill)-len(c.key)-len(last)-2) + "\n"
			if err := os.WriteFile(log, []byte("first\n"+c.key+"\n"+behind+fill+c.key+last), 0o600); err != nil {
				t.Fatal(err)
			}
			body, err := Tail("envoy.log", log).Fetch(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := string(scrub(body))
			if strings.Contains(got, planted[:8]) {
				t.Errorf("the key is there: %.200q", got)
			}
			if !strings.HasSuffix(got, "a line\n"+redacted+last) {
				t.Errorf("the end is %q", got[max(0, len(got)-100):])
			}
		})
	}
}
