package embedded

import (
	"encoding/pem"
	"fmt"
	"net/netip"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Context names of the admin kubeconfig.
const (
	localContext  = "fairlead"
	remoteContext = "fairlead-remote"
)

// restConfig reaches the API at addr as the plane. It names files, which client-go reads again
// when they change, so a connection outlives the renewal of its certificate.
func (p *pki) restConfig(addr netip.AddrPort) *rest.Config {
	return &rest.Config{
		Host: "https://" + addr.String(),
		TLSClientConfig: rest.TLSClientConfig{
			CAFile:   p.path(clusterCA + ".crt"),
			CertFile: p.path(leafPlane + ".pem"),
			KeyFile:  p.path(leafPlane + ".pem"),
		},
		// The server is in this process; its own flow control is what limits us.
		QPS: -1,
	}
}

// writeKubeconfig writes the kubeconfig of the administrator with everything inside, so that the
// file can be taken elsewhere. The context fairlead-remote is there if others reach the API at
// another address than this machine does.
func (p *pki) writeKubeconfig(path string, local, remote netip.AddrPort) error {
	cert, key, err := leafBlocks(p.dir, leafAdmin)
	if err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	k := clientcmdapi.NewConfig()
	k.AuthInfos["fairlead-admin"] = &clientcmdapi.AuthInfo{ClientCertificateData: pem.EncodeToMemory(cert), ClientKeyData: pem.EncodeToMemory(key)}
	add := func(name string, addr netip.AddrPort) {
		k.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + addr.String(), CertificateAuthorityData: p.cas[clusterCA].pem}
		k.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "fairlead-admin"}
	}
	add(localContext, local)
	if remote != local {
		add(remoteContext, remote)
	}
	k.CurrentContext = localContext
	b, err := clientcmd.Write(*k)
	if err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return writeFile(path, b)
}
