// Package clouds holds the test of discovery as a whole: two Kubernetes clusters with nodes and pods and an OpenStack cloud
// (keystone and octavia, the members of whose load balancers are processes of a machine) behind one plane and one edge. Under
// load weights move from the one to the others, pods come and go, an API dies and comes back, and the plane is killed.
package clouds
