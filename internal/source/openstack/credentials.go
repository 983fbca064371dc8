package openstack

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"fairlead.dev/internal/model"
	"fairlead.dev/internal/source/cloud"
)

// Credentials are a cloud of a clouds.yaml.
type Credentials struct {
	AuthURL string // ends with /v3/

	// A user, by ID or by name and domain, with a password.
	UserID, Username         string
	UserDomainID, UserDomain string
	Password                 model.Redacted

	// An application credential, by ID or by the user's name for it. Its project is its own.
	ApplicationCredentialID, ApplicationCredentialName string
	ApplicationCredentialSecret                        model.Redacted

	// Scope of the token: a project, by ID or by name and domain; a domain; or the system.
	ProjectID, Project             string
	ProjectDomainID, ProjectDomain string
	DomainID, Domain               string
	System                         bool

	Region    string // empty: the first that the catalog has
	Interface string // public, internal or admin

	// Endpoints that replace those of the catalog; empty: none do.
	LoadBalancerEndpoint, NetworkEndpoint string

	// Settings that an Allow must name.
	CACert, Cert, Key string // paths of files
	Insecure          bool   // certificates are not verified
}

// IsApplication reports whether the credentials are an application credential.
func (c *Credentials) IsApplication() bool { return c.ApplicationCredentialSecret != "" }

// ParseClouds reads one cloud of a clouds.yaml; cloud is its name, or empty for the only one.
// Errors name the key, or the line of an unknown one; they have no secret. It opens no file. A key that it does not know is an error, since a
// misspelt key would otherwise be ignored.
func ParseClouds(data []byte, cloud string) (Credentials, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		return Credentials{}, notYAML(err)
	}
	if len(root.Content) == 0 {
		return Credentials{}, errors.New("clouds.yaml is empty")
	}
	r := &reader{}
	top := r.mapping(root.Content[0], "clouds.yaml", []string{"clouds"})
	if r.err != nil {
		return Credentials{}, r.err
	}
	if top["clouds"] == nil {
		return Credentials{}, errors.New("clouds.yaml has no key clouds")
	}
	clouds := r.mapping(top["clouds"], "clouds", nil)
	if r.err != nil {
		return Credentials{}, r.err
	}
	names := make([]string, 0, len(clouds))
	for name := range clouds {
		names = append(names, name)
	}
	slices.Sort(names)
	switch {
	case len(names) == 0:
		return Credentials{}, errors.New("clouds: there is no cloud")
	case cloud == "" && len(names) > 1:
		return Credentials{}, fmt.Errorf("clouds: there are %d clouds (%s): spec.openstack.cloud must name one", len(names), strings.Join(names, ", "))
	case cloud == "":
		cloud = names[0]
	case clouds[cloud] == nil:
		return Credentials{}, fmt.Errorf("clouds: there is no cloud %q, but %s", cloud, strings.Join(names, ", "))
	}
	c := r.cloud(clouds[cloud], "clouds."+cloud)
	if r.err != nil {
		return Credentials{}, r.err
	}
	return c, nil
}

func notYAML(err error) error { return errors.New("clouds.yaml: it is no YAML" + cloud.SeeLine(err)) }

// cloudKeys are the keys of a cloud. Versions of APIs that are not used here are accepted.
var cloudKeys = []string{
	"auth", "auth_type", "region_name", "interface", "endpoint_type", "verify", "cacert", "cert", "key",
	"identity_api_version", "load_balancer_endpoint_override", "network_endpoint_override",
}

var authKeys = []string{
	"auth_url", "username", "user_id", "password", "user_domain_name", "user_domain_id",
	"project_name", "project_id", "tenant_name", "tenant_id", "project_domain_name", "project_domain_id",
	"domain_name", "domain_id", "default_domain", "system_scope",
	"application_credential_id", "application_credential_name", "application_credential_secret",
}

func (r *reader) cloud(node *yaml.Node, path string) Credentials {
	m := r.mapping(node, path, cloudKeys)
	at := path + ".auth"
	if m["auth"] == nil {
		r.fail(path, "it has no auth")
		return Credentials{}
	}
	a := r.mapping(m["auth"], at, authKeys)
	text := func(key string) string { return r.text(a[key], at+"."+key) }
	one := func(keys ...string) string { // keys that mean the same
		value, from := "", ""
		for _, key := range keys {
			switch v := text(key); {
			case v == "":
			case value != "" && v != value:
				r.fail(at+"."+key, "it contradicts "+from)
			default:
				value, from = v, key
			}
		}
		return value
	}
	c := Credentials{
		AuthURL: r.url(text("auth_url"), at+".auth_url"),
		UserID:  text("user_id"), Username: text("username"), Password: model.Redacted(text("password")),
		UserDomainID: text("user_domain_id"), UserDomain: text("user_domain_name"),
		ApplicationCredentialID:     text("application_credential_id"),
		ApplicationCredentialName:   text("application_credential_name"),
		ApplicationCredentialSecret: model.Redacted(text("application_credential_secret")),
		ProjectID:                   one("project_id", "tenant_id"), Project: one("project_name", "tenant_name"),
		ProjectDomainID: text("project_domain_id"), ProjectDomain: text("project_domain_name"),
		DomainID: text("domain_id"), Domain: text("domain_name"),
		Region: r.text(m["region_name"], path+".region_name"),
		CACert: r.text(m["cacert"], path+".cacert"), Cert: r.text(m["cert"], path+".cert"), Key: r.text(m["key"], path+".key"),
		LoadBalancerEndpoint: r.url(r.text(m["load_balancer_endpoint_override"], path+".load_balancer_endpoint_override"), path+".load_balancer_endpoint_override"),
		NetworkEndpoint:      r.url(r.text(m["network_endpoint_override"], path+".network_endpoint_override"), path+".network_endpoint_override"),
	}
	c.Insecure = !r.boolean(m["verify"], path+".verify", true)
	if c.AuthURL != "" && !strings.HasSuffix(c.AuthURL, "/v3/") {
		if strings.HasSuffix(c.AuthURL, "/v2.0/") {
			r.fail(at+".auth_url", "it is of version 2 of the identity API; only version 3 is known")
		}
		c.AuthURL += "v3/"
	}
	if v := r.text(m["identity_api_version"], path+".identity_api_version"); v != "" && v != "3" && !strings.HasPrefix(v, "3.") && v != "v3" {
		r.fail(path+".identity_api_version", "it is "+v+"; only version 3 is known")
	}

	c.Interface = strings.TrimSuffix(r.text(m["interface"], path+".interface"), "URL")
	if kind := strings.TrimSuffix(r.text(m["endpoint_type"], path+".endpoint_type"), "URL"); c.Interface == "" {
		c.Interface = kind
	}
	switch c.Interface {
	case "":
		c.Interface = "public"
	case "public", "internal", "admin":
	default:
		r.fail(path+".interface", "it is "+c.Interface+", none of public, internal, admin")
	}
	switch s := text("system_scope"); s {
	case "":
	case "all":
		c.System = true
	default:
		r.fail(at+".system_scope", "it is "+s+", not all")
	}
	if d := text("default_domain"); d != "" {
		if c.UserDomainID == "" && c.UserDomain == "" {
			c.UserDomainID = d
		}
		if c.ProjectDomainID == "" && c.ProjectDomain == "" {
			c.ProjectDomainID = d
		}
	}
	r.complete(&c, r.text(m["auth_type"], path+".auth_type"), path, at)
	return c
}

// complete checks that the credentials are all there, and fills in the domains that follow
// from others.
func (r *reader) complete(c *Credentials, kind, path, at string) {
	if c.AuthURL == "" {
		r.fail(at, "it has no auth_url")
	}
	application := c.ApplicationCredentialID != "" || c.ApplicationCredentialName != "" || c.ApplicationCredentialSecret != ""
	switch kind {
	case "":
	case "password", "v3password":
		if application {
			r.fail(path+".auth_type", "it is "+kind+", but auth has an application credential")
		}
	case "v3applicationcredential":
		application = true
	default:
		r.fail(path+".auth_type", "it is "+kind+"; known are password, v3password and v3applicationcredential")
	}
	if c.UserDomainID == "" && c.UserDomain == "" { // a domain of the scope is the user's, too
		c.UserDomainID, c.UserDomain = c.DomainID, c.Domain
		if c.UserDomainID == "" && c.UserDomain == "" {
			c.UserDomainID, c.UserDomain = c.ProjectDomainID, c.ProjectDomain
		}
	}
	if c.ProjectDomainID == "" && c.ProjectDomain == "" {
		c.ProjectDomainID, c.ProjectDomain = c.UserDomainID, c.UserDomain
	}
	needsUser := !application || c.ApplicationCredentialID == ""
	if needsUser && c.UserID == "" {
		if c.Username == "" {
			r.fail(at, "it has neither username nor user_id")
		}
		if c.UserDomainID == "" && c.UserDomain == "" {
			r.fail(at, "username needs user_domain_name or user_domain_id")
		}
	}
	if application {
		switch {
		case c.ApplicationCredentialID == "" && c.ApplicationCredentialName == "":
			r.fail(at, "it has neither application_credential_id nor application_credential_name")
		case c.ApplicationCredentialSecret == "":
			r.fail(at, "it has no application_credential_secret")
		case c.Password != "":
			r.fail(at+".password", "an application credential has none")
		}
		return
	}
	if c.Password == "" {
		r.fail(at, "it has no password")
	}
	project := c.ProjectID != "" || c.Project != ""
	switch {
	case c.System && project:
		r.fail(at+".system_scope", "the scope is either the system or a project")
	case c.Project != "" && c.ProjectID == "" && c.ProjectDomainID == "" && c.ProjectDomain == "":
		r.fail(at, "project_name needs project_domain_name or project_domain_id")
	case !project && !c.System && c.DomainID == "" && c.Domain == "":
		r.fail(at, "it has no scope: project_name, project_id, domain_name, domain_id or system_scope")
	}
}

// Check refuses settings that need an Allow which does not name them. The error names the
// value of the plane's --upstream-allow.
func (c *Credentials) Check(allow cloud.Allow) error {
	refuse := func(what, value string) error {
		return fmt.Errorf("%s is refused: the plane's --upstream-allow does not name %s", what, value)
	}
	for _, file := range []struct{ key, path string }{{"cacert", c.CACert}, {"cert", c.Cert}, {"key", c.Key}} {
		if file.path != "" && !allow.Files {
			return fmt.Errorf("%w; key ca.crt of the Secret holds authorities", refuse("the file "+file.path+" ("+file.key+")", "files"))
		}
	}
	if c.Insecure && !allow.Insecure {
		return refuse("verify: false", "insecure")
	}
	for _, address := range []string{c.AuthURL, c.LoadBalancerEndpoint, c.NetworkEndpoint} {
		if strings.HasPrefix(address, "http:") && !allow.PlainHTTP {
			return refuse(address+" (plain HTTP)", "plain-http")
		}
	}
	return nil
}

// reader reads YAML and keeps the first error.
type reader struct{ err error }

func (r *reader) fail(path, message string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s: %s", path, message)
	}
}

// mapping reads a mapping; allowed nil allows every key.
func (r *reader) mapping(node *yaml.Node, path string, allowed []string) map[string]*yaml.Node {
	for node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	if node == nil || node.Kind != yaml.MappingNode {
		r.fail(path, "it must be a mapping")
		return nil
	}
	all := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i].Value
		_, twice := all[key]
		switch {
		case twice:
			r.fail(path, fmt.Sprintf("the key in line %d is there twice", node.Content[i].Line))
		case allowed != nil && !slices.Contains(allowed, key) && (path == "clouds.yaml" || !strings.HasSuffix(key, "_api_version")):
			// The key itself may be a secret that has lost its key.
			r.fail(path, fmt.Sprintf("the key in line %d is unknown; known are %s", node.Content[i].Line, strings.Join(allowed, ", ")))
		}
		all[key] = node.Content[i+1]
	}
	return all
}

// text reads a scalar as it is written, so that a password of digits needs no quotes.
func (r *reader) text(node *yaml.Node, path string) string {
	for node != nil && node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch {
	case node == nil || node.Tag == "!!null":
		return ""
	case node.Kind != yaml.ScalarNode:
		r.fail(path, "it must be a text")
		return ""
	}
	return node.Value
}

func (r *reader) boolean(node *yaml.Node, path string, otherwise bool) bool {
	switch text := strings.ToLower(r.text(node, path)); text {
	case "":
		return otherwise
	case "true", "yes", "on", "1":
		return true
	case "false", "no", "off", "0":
		return false
	default:
		r.fail(path, "it must be true or false")
		return otherwise
	}
}

// url is a checked URL that ends with a slash, or empty.
func (r *reader) url(text, path string) string {
	if text == "" {
		return ""
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		r.fail(path, "it is no URL") // the error would quote what may be a secret
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		r.fail(path, "it must begin with https:// or http:// and a host")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		r.fail(path, "it must have no user, query or fragment")
	default:
		return strings.TrimRight(u.String(), "/") + "/"
	}
	return ""
}
