package kube

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"fairlead.dev/api/v1alpha1"
	"fairlead.dev/internal/source/cloud"
)

// maxKubeconfig bounds a kubeconfig, in bytes.
const maxKubeconfig = 1 << 20

// execExtension is the extension of a cluster that is handed to exec plugins.
const execExtension = "client.authentication.k8s.io/exec"

// ParseKubeconfig makes a client's configuration of a kubeconfig. The context "" is the current one. Only what the
// context uses is read, and it must be inline, unless allow says otherwise. It does no I/O.
//
// The error is a *cloud.Error with ReasonCredentials. It names the field of the kubeconfig, and no secret.
func ParseKubeconfig(data []byte, context string, allow cloud.Allow) (*rest.Config, error) {
	c, err := parseKubeconfig(data, context, allow)
	if err != nil {
		return nil, &cloud.Error{Reason: v1alpha1.ReasonCredentials, Err: err}
	}
	return c, nil
}

func parseKubeconfig(data []byte, context string, allow cloud.Allow) (*rest.Config, error) {
	if len(data) > maxKubeconfig {
		return nil, fmt.Errorf("the kubeconfig is larger than %d MiB", maxKubeconfig>>20)
	}
	k, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be read: it is no YAML of a kubeconfig%s", cloud.SeeLine(err))
	}
	if context == "" {
		if context = k.CurrentContext; context == "" {
			return nil, fmt.Errorf("current-context: missing; set it, or name one of the contexts (%s) in spec.kubernetes.context", names(k.Contexts))
		}
	}
	c := k.Contexts[context]
	if c == nil {
		return nil, fmt.Errorf("contexts: none is named %q; there are: %s", context, names(k.Contexts))
	}
	path := fmt.Sprintf("contexts[%s].context", context)
	cluster := k.Clusters[c.Cluster]
	if cluster == nil {
		return nil, fmt.Errorf("%s.cluster: there is no cluster %q; there are: %s", path, c.Cluster, names(k.Clusters))
	}
	user := k.AuthInfos[c.AuthInfo]
	if user == nil {
		if c.AuthInfo != "" {
			return nil, fmt.Errorf("%s.user: there is no user %q; there are: %s", path, c.AuthInfo, names(k.AuthInfos))
		}
		user = &clientcmdapi.AuthInfo{}
	}
	out := &rest.Config{}
	p := parser{allow: allow, out: out}
	p.cluster(fmt.Sprintf("clusters[%s].cluster", c.Cluster), cluster)
	p.user(fmt.Sprintf("users[%s].user", c.AuthInfo), user, cluster)
	if len(p.faults) > 0 {
		return nil, errors.New(strings.Join(p.faults, "; "))
	}
	return out, nil
}

func names[T any](m map[string]T) string {
	if len(m) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

// parser collects all that is wrong with a kubeconfig.
type parser struct {
	allow cloud.Allow
	out   *rest.Config
	// faults found so far, each with the field's path
	faults []string
}

func (p *parser) fail(field, format string, args ...any) {
	p.faults = append(p.faults, field+": "+fmt.Sprintf(format, args...))
}

// refuse refuses a field unless it is allowed.
func (p *parser) refuse(field, text string, allowed bool, flag string) {
	if !allowed {
		p.fail(field, "%s; %s=%s of the plane allows it", text, cloud.AllowFlag, flag)
	}
}

// file refuses a path of a file unless files are allowed.
func (p *parser) file(field, path, instead string) string {
	switch {
	case path == "":
	case !p.allow.Files:
		p.refuse(field, "files are not read; give "+instead, false, "files")
	case !filepath.IsAbs(path):
		p.fail(field, "the path must be absolute")
	}
	return path
}

func (p *parser) cluster(path string, c *clientcmdapi.Cluster) {
	p.server(path+".server", c.Server)
	p.out.ServerName = c.TLSServerName
	p.out.DisableCompression = c.DisableCompression
	p.out.CAFile = p.file(path+".certificate-authority", c.CertificateAuthority, "certificate-authority-data")
	if p.out.CAData = c.CertificateAuthorityData; len(p.out.CAData) > 0 && !x509.NewCertPool().AppendCertsFromPEM(p.out.CAData) {
		p.fail(path+".certificate-authority-data", "it has no certificate in PEM form")
	}
	if c.InsecureSkipTLSVerify {
		field := path + ".insecure-skip-tls-verify"
		p.refuse(field, "certificates are always verified", p.allow.Insecure, "insecure")
		if len(c.CertificateAuthorityData) > 0 || c.CertificateAuthority != "" {
			p.fail(field, "it contradicts the certificate authority")
		}
		p.out.Insecure = true
	}
	if c.ProxyURL != "" {
		field := path + ".proxy-url"
		p.refuse(field, "proxies are not used", p.allow.Proxies, "proxies")
		u, err := url.Parse(c.ProxyURL)
		if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
			p.fail(field, "it must be a URL such as http://proxy.example:3128") // its text may have a password
			return
		}
		p.out.Proxy = http.ProxyURL(u)
	}
}

func (p *parser) server(field, server string) {
	u, err := url.Parse(server)
	switch {
	case server == "":
		p.fail(field, "missing")
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		p.fail(field, "it must be a URL such as https://api.example:6443")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		p.fail(field, "it must have neither a user, a query nor a fragment")
	case u.Scheme == "http":
		p.refuse(field, "credentials are not sent without TLS", p.allow.PlainHTTP, "plain-http")
	}
	p.out.Host = server
}

func (p *parser) user(path string, u *clientcmdapi.AuthInfo, cluster *clientcmdapi.Cluster) {
	if u.AuthProvider != nil {
		p.fail(path+".auth-provider", "it is not supported; give a token or a client certificate")
	}
	if u.Exec != nil {
		p.refuse(path+".exec", "programs are not started; give a token or a client certificate", p.allow.Exec, "exec")
		p.out.ExecProvider = u.Exec.DeepCopy()
		p.out.ExecProvider.InteractiveMode = clientcmdapi.NeverExecInteractiveMode
		p.out.ExecProvider.StdinUnavailable = true
		p.out.ExecProvider.Config = cluster.Extensions[execExtension]
	}
	p.out.CertFile = p.file(path+".client-certificate", u.ClientCertificate, "client-certificate-data")
	p.out.KeyFile = p.file(path+".client-key", u.ClientKey, "client-key-data")
	p.out.BearerTokenFile = p.file(path+".tokenFile", u.TokenFile, "token")
	p.out.CertData, p.out.KeyData = u.ClientCertificateData, u.ClientKeyData
	p.out.BearerToken = strings.TrimSpace(u.Token)
	p.out.Username, p.out.Password = u.Username, u.Password
	p.out.Impersonate = rest.ImpersonationConfig{
		UserName: u.Impersonate, UID: u.ImpersonateUID, Groups: u.ImpersonateGroups, Extra: u.ImpersonateUserExtra,
	}
	hasCert := len(u.ClientCertificateData) > 0 || u.ClientCertificate != ""
	hasKey := len(u.ClientKeyData) > 0 || u.ClientKey != ""
	switch {
	case hasCert && !hasKey:
		p.fail(path+".client-key-data", "missing, though there is a client certificate")
	case !hasCert && hasKey:
		p.fail(path+".client-certificate-data", "missing, though there is a client key")
	case len(u.ClientCertificateData) > 0 && len(u.ClientKeyData) > 0:
		if _, err := tls.X509KeyPair(u.ClientCertificateData, u.ClientKeyData); err != nil {
			p.fail(path+".client-certificate-data", "it does not fit client-key-data: %v", err)
		}
	}
	if strings.ContainsFunc(p.out.BearerToken, func(r rune) bool { return r <= ' ' || r > '~' }) {
		p.fail(path+".token", "it has characters that no token has")
	}
	if u.Impersonate == "" && (u.ImpersonateUID != "" || len(u.ImpersonateGroups) > 0 || len(u.ImpersonateUserExtra) > 0) {
		p.fail(path+".as", "missing, though as-uid, as-groups or as-user-extra is given")
	}
}
