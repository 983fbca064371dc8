package openstack

import (
	"fmt"
	"strings"
	"testing"

	"fairlead.dev/internal/source/cloud"
)

const passwordCloud = `
clouds:
  prod:
    auth_type: password
    auth:
      auth_url: https://keystone.example:5000/v3
      username: fairlead
      password: 0123
      project_name: admin
      user_domain_name: Default
      project_domain_id: default
    region_name: RegionOne
    interface: internal
    identity_api_version: 3
    volume_api_version: 3
`

func TestParseClouds(t *testing.T) {
	c, err := ParseClouds([]byte(passwordCloud), "")
	if err != nil {
		t.Fatal(err)
	}
	want := Credentials{
		AuthURL: "https://keystone.example:5000/v3/", Username: "fairlead", UserDomain: "Default", Password: "0123",
		Project: "admin", ProjectDomainID: "default", Region: "RegionOne", Interface: "internal",
	}
	if c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
	if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, "0123") {
		t.Errorf("the password is in %s", text)
	}

	id, err := ParseClouds([]byte(`
clouds:
  a: {auth: {auth_url: "https://a"}}
  b:
    auth_type: v3applicationcredential
    auth: &b {auth_url: "https://b/identity/", application_credential_id: 5c1e, application_credential_secret: s}
  c:
    auth: {auth_url: "https://b/identity", application_credential_name: n, application_credential_secret: s, username: u, user_domain_id: default}
  d:
    endpoint_type: adminURL
    load_balancer_endpoint_override: https://lb.example/load-balancer
    auth: {auth_url: "https://d", user_id: u, password: p, system_scope: all}
  e:
    auth: {auth_url: "https://d", username: u, password: p, tenant_name: t, default_domain: default}
`), "b")
	if want := (Credentials{
		AuthURL: "https://b/identity/v3/", ApplicationCredentialID: "5c1e", ApplicationCredentialSecret: "s", Interface: "public",
	}); err != nil || id != want || !id.IsApplication() {
		t.Errorf("got %+v, %v; want %+v", id, err, want)
	}
}

func TestParseCloudsRefuses(t *testing.T) {
	auth := func(more string) string {
		return "clouds: {c: {auth: {auth_url: 'https://a', " + more + "}}}"
	}
	for _, c := range []struct{ name, yaml, cloud, want string }{
		{"empty", "", "", "clouds.yaml is empty"},
		{"not YAML", "clouds: [", "", "clouds.yaml: it is no YAML: see line 1"},
		{"a password that begins with an asterisk", auth("password: *hunter2"), "", "clouds.yaml: it is no YAML"},
		{"a list", "- a", "", "clouds.yaml: it must be a mapping"},
		{"another document", "apiVersion: v1", "", "clouds.yaml: the key in line 1 is unknown; known are clouds"},
		{"no cloud", "clouds: {}", "", "clouds: there is no cloud"},
		{"several", "clouds: {b: {}, a: {}}", "", "clouds: there are 2 clouds (a, b): spec.openstack.cloud must name one"},
		{"another", "clouds: {b: {}, a: {}}", "c", `clouds: there is no cloud "c", but a, b`},
		{"no auth", "clouds: {c: {}}", "", "clouds.c: it has no auth"},
		{"auth is a text", "clouds: {c: {auth: x}}", "", "clouds.c.auth: it must be a mapping"},
		{"unknown key", "clouds: {c: {proxy: x, auth: {}}}", "", "clouds.c: the key in line 1 is unknown; known are " + strings.Join(cloudKeys, ", ")},
		{"misspelt key", auth("usrname: x"), "", "clouds.c.auth: the key in line 1 is unknown; known are " + strings.Join(authKeys, ", ")},
		{"twice", "clouds: {c: {auth: {}, auth: {}}}", "", "clouds.c: the key in line 1 is there twice"},
		{"no auth_url", "clouds: {c: {auth: {user_id: u, password: p, project_id: x}}}", "", "clouds.c.auth: it has no auth_url"},
		{"file", "clouds: {c: {auth: {auth_url: 'file:///etc/passwd'}}}", "", "clouds.c.auth.auth_url: it must begin with https:// or http:// and a host"},
		{"user in URL", "clouds: {c: {auth: {auth_url: 'https://u:p@a'}}}", "", "clouds.c.auth.auth_url: it must have no user, query or fragment"},
		{"version 2", "clouds: {c: {auth: {auth_url: 'https://a/v2.0'}}}", "", "clouds.c.auth.auth_url: it is of version 2 of the identity API; only version 3 is known"},
		{"identity version", "clouds: {c: {identity_api_version: '2.0', auth: {auth_url: 'https://a'}}}", "", "clouds.c.identity_api_version: it is 2.0; only version 3 is known"},
		{"no user", auth("password: p, project_id: x"), "", "clouds.c.auth: it has neither username nor user_id"},
		{"no domain", auth("username: u, password: p, project_id: x"), "", "clouds.c.auth: username needs user_domain_name or user_domain_id"},
		{"no password", auth("user_id: u, project_id: x"), "", "clouds.c.auth: it has no password"},
		{"no scope", auth("user_id: u, password: p"), "", "clouds.c.auth: it has no scope: project_name, project_id, domain_name, domain_id or system_scope"},
		{"project without domain", auth("user_id: u, password: p, project_name: x"), "", "clouds.c.auth: project_name needs project_domain_name or project_domain_id"},
		{"two projects", auth("user_id: u, password: p, project_id: x, tenant_id: y"), "", "clouds.c.auth.tenant_id: it contradicts project_id"},
		{"two scopes", auth("user_id: u, password: p, project_id: x, system_scope: all"), "", "clouds.c.auth.system_scope: the scope is either the system or a project"},
		{"token", "clouds: {c: {auth_type: v3token, auth: {auth_url: 'https://a'}}}", "", "clouds.c.auth_type: it is v3token; known are password, v3password and v3applicationcredential"},
		{"two credentials", auth("application_credential_id: i, application_credential_secret: s, password: p"), "", "clouds.c.auth.password: an application credential has none"},
		{"no secret", auth("application_credential_id: i"), "", "clouds.c.auth: it has no application_credential_secret"},
		{"no application credential", auth("application_credential_secret: s, user_id: u"), "", "clouds.c.auth: it has neither application_credential_id nor application_credential_name"},
		{"password is a list", auth("password: [p]"), "", "clouds.c.auth.password: it must be a text"},
		{"interface", "clouds: {c: {interface: private, auth: {auth_url: 'https://a'}}}", "", "clouds.c.interface: it is private, none of public, internal, admin"},
		{"verify", "clouds: {c: {verify: maybe, auth: {auth_url: 'https://a'}}}", "", "clouds.c.verify: it must be true or false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := ParseClouds([]byte(c.yaml), c.cloud)
			if err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestAllowedCredentials(t *testing.T) {
	for _, c := range []struct {
		name, key, value string
		want             string
		allow            cloud.Allow
	}{
		{"cacert", "cacert", "/etc/ssl/ca.pem", "the file /etc/ssl/ca.pem (cacert) is refused: the plane's --upstream-allow does not name files; key ca.crt of the Secret holds authorities", cloud.Allow{Files: true}},
		{"cert", "cert", "c.pem", "the file c.pem (cert) is refused: the plane's --upstream-allow does not name files; key ca.crt of the Secret holds authorities", cloud.Allow{Files: true}},
		{"key", "key", "k.pem", "the file k.pem (key) is refused: the plane's --upstream-allow does not name files; key ca.crt of the Secret holds authorities", cloud.Allow{Files: true}},
		{"verify", "verify", "false", "verify: false is refused: the plane's --upstream-allow does not name insecure", cloud.Allow{Insecure: true}},
		{"endpoint", "load_balancer_endpoint_override", "http://lb", "http://lb/ (plain HTTP) is refused: the plane's --upstream-allow does not name plain-http", cloud.Allow{PlainHTTP: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ParseClouds([]byte(passwordCloud+"    "+c.key+": "+c.value+"\n"), "prod")
			if err != nil {
				t.Fatal(err)
			}
			if err := got.Check(cloud.Allow{}); err == nil || err.Error() != c.want {
				t.Errorf("got %v\nwant %s", err, c.want)
			}
			if err := got.Check(c.allow); err != nil {
				t.Errorf("allowed by %+v: %v", c.allow, err)
			}
		})
	}
	plain, err := ParseClouds([]byte(strings.Replace(passwordCloud, "https:", "http:", 1)), "")
	if err != nil {
		t.Fatal(err)
	}
	const want = "http://keystone.example:5000/v3/ (plain HTTP) is refused: the plane's --upstream-allow does not name plain-http"
	if err := plain.Check(cloud.Allow{}); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
