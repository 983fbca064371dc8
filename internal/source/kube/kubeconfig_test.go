package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/cloud"
)

// keyPair is a certificate that signed itself, and its key, in PEM form.
func keyPair(t *testing.T, notAfter time.Time) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}, NotBefore: notAfter.AddDate(-1, 0, 0), NotAfter: notAfter,
		DNSNames: []string{"api.example"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

// kubeconfig has one context with the fields of a cluster and of a user.
func kubeconfig(cluster, user string) string {
	return `
apiVersion: v1
kind: Config
current-context: main
contexts:
- name: main
  context: {cluster: prod, user: discoverer}
- name: second
  context: {cluster: away, user: discoverer}
- name: third
  context: {cluster: prod, user: nobody}
clusters:
- name: prod
  cluster: {` + cluster + `}
users:
- name: discoverer
  user: {` + user + `}
`
}

func TestParseKubeconfig(t *testing.T) {
	cert, key := keyPair(t, time.Now().AddDate(1, 0, 0))
	_, otherKey := keyPair(t, time.Now().AddDate(1, 0, 0))
	b64 := base64.StdEncoding.EncodeToString
	const server = "server: 'https://api.example:6443'"
	all := cloud.Allow{Exec: true, Files: true, Proxies: true, Insecure: true, PlainHTTP: true}
	for name, c := range map[string]struct {
		text    string
		context string
		allow   cloud.Allow
		want    string // part of the error; empty: none
	}{
		"token":              {text: kubeconfig(server, "token: hunter2")},
		"password":           {text: kubeconfig(server, "username: u, password: hunter2")},
		"client certificate": {text: kubeconfig(server+", certificate-authority-data: "+b64(cert), "client-certificate-data: "+b64(cert)+", client-key-data: "+b64(key))},
		"nothing":            {text: kubeconfig(server, "")},
		"impersonation":      {text: kubeconfig(server, "token: hunter2, as: other, as-groups: [g]")},
		"no YAML":            {text: "hunter2: [", want: "the kubeconfig cannot be read: "},
		"a text":             {text: "hunter2", want: "the kubeconfig cannot be read: "},
		"another kind":       {text: "apiVersion: v1\nkind: Secret\n", want: "the kubeconfig cannot be read: "},
		"no base64":          {text: kubeconfig(server, "client-key-data: hunter2hunter2!"), want: "the kubeconfig cannot be read: "},
		"an alias":           {text: kubeconfig(server, "token: *hunter2"), want: "the kubeconfig cannot be read: it is no YAML of a kubeconfig"},
		"a list for a text":  {text: kubeconfig(server, "token: {hunter2: 1}"), want: "the kubeconfig cannot be read: it is no YAML of a kubeconfig"},
		"a secret as a kind": {text: "apiVersion: v1\nkind: hunter2\n", want: "the kubeconfig cannot be read: it is no YAML of a kubeconfig"},
		"a secret as a key":  {text: kubeconfig(server, "hunter2: 1, tokenFile: x"), want: "users[discoverer].user.tokenFile: files are not read"},
		"a line":             {text: "apiVersion: v1\nusers:\n- name: u\n  user: {token: hunter2\n", want: "the kubeconfig cannot be read: it is no YAML of a kubeconfig: see line 4"},
		"a line in a secret": {text: "apiVersion: v1\nkind: 'yaml: line 77: hunter2'\n", want: "the kubeconfig cannot be read: it is no YAML of a kubeconfig"},
		"empty":              {want: "current-context: missing; set it, or name one of the contexts (none) in spec.kubernetes.context"},
		"too large":          {text: kubeconfig(server, "") + strings.Repeat("#", 1<<20), want: "the kubeconfig is larger than 1 MiB"},
		"no context": {
			text: strings.Replace(kubeconfig(server, ""), "current-context: main", "", 1),
			want: "current-context: missing; set it, or name one of the contexts (main, second, third) in spec.kubernetes.context",
		},
		"a named context":         {text: strings.Replace(kubeconfig(server, ""), "current-context: main", "", 1), context: "main"},
		"unknown context":         {text: kubeconfig(server, ""), context: "fourth", want: `contexts: none is named "fourth"; there are: main, second, third`},
		"unknown cluster":         {text: kubeconfig(server, ""), context: "second", want: `contexts[second].context.cluster: there is no cluster "away"; there are: prod`},
		"unknown user":            {text: kubeconfig(server, ""), context: "third", want: `contexts[third].context.user: there is no user "nobody"; there are: discoverer`},
		"no server":               {text: kubeconfig("", ""), want: "clusters[prod].cluster.server: missing"},
		"no URL":                  {text: kubeconfig("server: 'api.example:6443'", ""), want: "clusters[prod].cluster.server: it must be a URL such as https://api.example:6443"},
		"a password in the URL":   {text: kubeconfig("server: 'https://u:hunter2@api.example'", ""), want: "clusters[prod].cluster.server: it must have neither a user, a query nor a fragment"},
		"plain HTTP":              {text: kubeconfig("server: 'http://api.example'", ""), want: "clusters[prod].cluster.server: credentials are not sent without TLS; --upstream-allow=plain-http of the plane allows it"},
		"plain HTTP, allowed":     {text: kubeconfig("server: 'http://api.example'", ""), allow: all},
		"skip-verify":             {text: kubeconfig(server+", insecure-skip-tls-verify: true", ""), want: "clusters[prod].cluster.insecure-skip-tls-verify: certificates are always verified; --upstream-allow=insecure of the plane allows it"},
		"skip-verify, allowed":    {text: kubeconfig(server+", insecure-skip-tls-verify: true", ""), allow: all},
		"skip-verify with CA":     {text: kubeconfig(server+", insecure-skip-tls-verify: true, certificate-authority-data: "+b64(cert), ""), allow: all, want: "clusters[prod].cluster.insecure-skip-tls-verify: it contradicts the certificate authority"},
		"proxy":                   {text: kubeconfig(server+", proxy-url: 'http://u:hunter2@proxy:3128'", ""), want: "clusters[prod].cluster.proxy-url: proxies are not used; --upstream-allow=proxies of the plane allows it"},
		"proxy, allowed":          {text: kubeconfig(server+", proxy-url: 'http://proxy:3128'", ""), allow: all},
		"a bad proxy, allowed":    {text: kubeconfig(server+", proxy-url: 'ftp://hunter2'", ""), allow: all, want: "clusters[prod].cluster.proxy-url: it must be a URL such as http://proxy.example:3128"},
		"CA in a file":            {text: kubeconfig(server+", certificate-authority: /etc/passwd", ""), want: "clusters[prod].cluster.certificate-authority: files are not read; give certificate-authority-data; --upstream-allow=files of the plane allows it"},
		"CA without certificates": {text: kubeconfig(server+", certificate-authority-data: "+b64([]byte("none")), ""), want: "clusters[prod].cluster.certificate-authority-data: it has no certificate in PEM form"},
		"files": {
			text: kubeconfig(server, "client-certificate: /a, client-key: /b, tokenFile: /c"),
			want: "users[discoverer].user.client-certificate: files are not read; give client-certificate-data; --upstream-allow=files of the plane allows it; " +
				"users[discoverer].user.client-key: files are not read; give client-key-data; --upstream-allow=files of the plane allows it; " +
				"users[discoverer].user.tokenFile: files are not read; give token; --upstream-allow=files of the plane allows it",
		},
		"files, allowed":      {text: kubeconfig(server, "tokenFile: /c"), allow: all},
		"a relative path":     {text: kubeconfig(server, "tokenFile: c"), allow: all, want: "users[discoverer].user.tokenFile: the path must be absolute"},
		"exec":                {text: kubeconfig(server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [hunter2], interactiveMode: Never}"), want: "users[discoverer].user.exec: programs are not started; give a token or a client certificate; --upstream-allow=exec of the plane allows it"},
		"exec, allowed":       {text: kubeconfig(server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}"), allow: all},
		"auth-provider":       {text: kubeconfig(server, "auth-provider: {name: oidc, config: {id-token: hunter2}}"), allow: all, want: "users[discoverer].user.auth-provider: it is not supported; give a token or a client certificate"},
		"key of another":      {text: kubeconfig(server, "client-certificate-data: "+b64(cert)+", client-key-data: "+b64(otherKey)), want: "users[discoverer].user.client-certificate-data: it does not fit client-key-data: "},
		"certificate, no key": {text: kubeconfig(server, "client-certificate-data: "+b64(cert)), want: "users[discoverer].user.client-key-data: missing, though there is a client certificate"},
		"key, no certificate": {text: kubeconfig(server, "client-key-data: "+b64(key)), want: "users[discoverer].user.client-certificate-data: missing, though there is a client key"},
		"a token of lines":    {text: kubeconfig(server, `token: "hunter2\nhunter2"`), want: "users[discoverer].user.token: it has characters that no token has"},
		"groups of nobody":    {text: kubeconfig(server, "as-groups: [g]"), want: "users[discoverer].user.as: missing, though as-uid, as-groups or as-user-extra is given"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseKubeconfig([]byte(c.text), c.context, c.allow)
			if c.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(got.Host, "http") {
					t.Errorf("host %q", got.Host)
				}
				return
			}
			switch {
			case err == nil || got != nil:
				t.Fatalf("no error, or a configuration: %v", err)
			case !strings.Contains(err.Error(), c.want):
				t.Errorf("error %q, want %q", err, c.want)
			case strings.Contains(err.Error(), "hunter2"):
				t.Errorf("the error has a secret: %q", err)
			case cloud.ReasonOf(err) != v1alpha1.ReasonCredentials:
				t.Errorf("reason %s", cloud.ReasonOf(err))
			}
		})
	}
}

// Whatever the bytes are, there is no panic, and no secret in the error.
func FuzzParseKubeconfig(f *testing.F) {
	f.Add([]byte(kubeconfig("server: 'https://api'", "token: hunter2")), "")
	f.Add([]byte(`{"current-context":"\u0000","contexts":null}`), "x")
	f.Fuzz(func(t *testing.T, data []byte, context string) {
		c, err := ParseKubeconfig(data, context, cloud.Allow{})
		if (c == nil) == (err == nil) {
			t.Errorf("%v, %v", c, err)
		}
		if c != nil && (c.ExecProvider != nil || c.Insecure || c.Proxy != nil || c.CAFile != "" || c.CertFile != "" || c.KeyFile != "" || c.BearerTokenFile != "") {
			t.Errorf("accepted: %v", c)
		}
	})
}

func TestSelection(t *testing.T) {
	for _, c := range []struct {
		include, exclude []string
		has, not         string
		scopes           string
	}{
		{nil, nil, "default team01", "kube-system kube-public", ""},
		{nil, []string{"default", "test-*"}, "team01 testing", "default test-1 kube-system", ""},
		{[]string{"team*"}, []string{"*-old"}, "team01 team", "default team01-old", ""},
		{[]string{"*"}, nil, "default", "kube-system", ""},
		{[]string{"kube-*", "a"}, nil, "kube-system a", "b", ""},
		{[]string{"kube-public"}, nil, "kube-public", "kube-system default", "kube-public"},
		{[]string{"b", "a", "b"}, nil, "a b", "c", "a b"},
		{[]string{"b", "a"}, []string{"b"}, "a", "b", "a"},
		{[]string{"b"}, []string{"*"}, "", "a b", ""},
		{strings.Fields("a b c d e f g h i j k l m n o p"), nil, "p", "q", "a b c d e f g h i j k l m n o p"},
		{strings.Fields("a b c d e f g h i j k l m n o p q"), nil, "q", "r", ""},
		{[]string{"a*b*c"}, nil, "abc axxbxxc abbc", "ab ac abcd bc acb", ""},
		{[]string{"aa*aa"}, nil, "aaaa", "aaa aa", ""},
	} {
		s := newSelection(v1alpha1.UpstreamNamespaces{Include: c.include, Exclude: c.exclude})
		for _, name := range strings.Fields(c.has) {
			if !s.has(name) {
				t.Errorf("%v without %v: %s is out", c.include, c.exclude, name)
			}
		}
		for _, name := range strings.Fields(c.not) {
			if s.has(name) {
				t.Errorf("%v without %v: %s is in", c.include, c.exclude, name)
			}
		}
		if got := strings.Join(s.scopes(), " "); got != c.scopes {
			t.Errorf("%v without %v: scopes %q, want %q", c.include, c.exclude, got, c.scopes)
		}
	}
}
