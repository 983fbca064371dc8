package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKubeconfigsThatCannotBeUsed holds that only a kubeconfig that does not exist is reported as missing, and that a
// file that a kubeconfig names and that does not exist is reported itself.
func TestKubeconfigsThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	path, there, gone := filepath.Join(dir, "config"), filepath.Join(dir, "there.pem"), filepath.Join(dir, "gone.pem")
	const none = "no kubeconfig at "
	if _, err := restConfig(path); err == nil || !strings.HasPrefix(err.Error(), none+path+": ") {
		t.Errorf("without a file: %v", err)
	}
	if err := os.WriteFile(there, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, files := range map[string][3]string{
		"authority": {gone, there, there}, "certificate": {there, gone, there}, "key": {there, there, gone},
	} {
		config := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: x
contexts: [{name: x, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://192.0.2.1:6443", certificate-authority: %s}}]
users: [{name: u, user: {client-certificate: %s, client-key: %s}}]
`, files[0], files[1], files[2])
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := restConfig(path)
		if err == nil || strings.Contains(err.Error(), none) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), gone) {
			t.Errorf("without the file of its %s: %v", what, err)
		}
	}
}
