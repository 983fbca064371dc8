package openstack

import (
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	clients "github.com/gophercloud/gophercloud/v2/openstack"
)

// A client that is not ours reads all of a simulated cloud.
func TestWalkSimulated(t *testing.T) {
	sim := NewSimulated()
	for i := range 5 {
		sim.Seed(fmt.Sprintf("team%02d", i), 2, 3)
	}
	server := httptest.NewServer(sim)
	defer server.Close()
	provider, err := clients.AuthenticatedClient(t.Context(), gophercloud.AuthOptions{
		IdentityEndpoint: server.URL + "/identity/v3", Username: "admin", Password: "secret", DomainName: "Default", TenantName: "admin",
	})
	if err != nil {
		t.Fatal(err)
	}
	w, err := Walk(t.Context(), provider, 0)
	w.Took = 0
	if want := (Walked{Projects: 6, LoadBalancers: 10, Members: 30, Requests: 1 + 5*3 + 10}); err != nil || w != want {
		t.Errorf("got %+v, %v; want %+v", w, err, want)
	}
}
