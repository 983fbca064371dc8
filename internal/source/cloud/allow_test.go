package cloud

import "testing"

func TestParseAllow(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   Allow
		text   string
		err    string
	}{
		{nil, Allow{}, "", ""},
		{[]string{"plain-http", "files"}, Allow{Files: true, PlainHTTP: true}, "files,plain-http", ""},
		{
			[]string{"exec", "files", "proxies", "insecure", "plain-http", "loopback", "exec"},
			Allow{Exec: true, Files: true, Proxies: true, Insecure: true, PlainHTTP: true, Loopback: true},
			"exec,files,proxies,insecure,plain-http,loopback", "",
		},
		{[]string{"files", "Insecure"}, Allow{}, "", `"Insecure" is none of exec, files, proxies, insecure, plain-http, loopback`},
		{[]string{""}, Allow{}, "", `"" is none of exec, files, proxies, insecure, plain-http, loopback`},
	} {
		got, err := ParseAllow(c.values)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if got != c.want || text != c.err || got.String() != c.text {
			t.Errorf("ParseAllow(%q) = %+v (%q), %q; want %+v (%q), %q", c.values, got, got, text, c.want, c.text, c.err)
		}
	}
}
