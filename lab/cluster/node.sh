#!/usr/bin/env bash
# The first process of a node, in mount, process and host name namespaces of its own:
# when it ends, the kernel ends all others. Runs containerd, kubelet and kube-proxy.
#
# Set by the caller: NODE NODE_DIR NODE_IP LABS TOOLS KUBECONFIG_NODE KUBECONFIG_PROXY POD_NET
set -euo pipefail

echo "$NODE" >/proc/sys/kernel/hostname
# Fresh /run, /var/lib and /var/log, in memory. What the node needs of the host's is carried
# over first: a checkout may lie below one of them.
new=$NODE_DIR/run
mkdir -p "$new"
mount -t tmpfs -o mode=0755 run "$new"
mkdir -p "$new/fairlead-tools" "$new/fairlead-volumes" "$new/lock" "$new/${LABS#/run/}"
mount --bind "$TOOLS" "$new/fairlead-tools"
mount --rbind "$LABS" "$new/${LABS#/run/}"
mount --rbind "$new" /run
mount -t tmpfs -o mode=0755 lib /var/lib
mount -t tmpfs -o mode=0755 log /var/log
# BPF programs and tables of its own, where the kernel has them.
mount -t bpf bpf /sys/fs/bpf 2>/dev/null || true
mount --make-rshared / # kubelet and pods share mounts

echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
# Replies to a VIP's clients may leave another way than they came.
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
echo 0 >/proc/sys/net/ipv4/conf/default/rp_filter

kubernetes=/run/fairlead-tools/kubernetes
containerd --config "$NODE_DIR/containerd.toml" >"$NODE_DIR/containerd.log" 2>&1 &
until ctr --address "$NODE_DIR/containerd.sock" version >/dev/null 2>&1; do
	kill -0 $! || exit 1
	sleep 0.05
done
"$kubernetes" kubelet --config="$NODE_DIR/kubelet.yaml" --kubeconfig="$KUBECONFIG_NODE" \
	--hostname-override="$NODE" --node-ip="$NODE_IP" >"$NODE_DIR/kubelet.log" 2>&1 &
"$kubernetes" kube-proxy --kubeconfig="$KUBECONFIG_PROXY" --hostname-override="$NODE" \
	--proxy-mode=iptables --cluster-cidr="$POD_NET" --conntrack-max-per-core=0 --nodeport-addresses=primary \
	>"$NODE_DIR/kube-proxy.log" 2>&1 &
trap 'kill -TERM $(jobs -p) 2>/dev/null; exit 0' TERM
wait -n
echo "a part of node $NODE has ended: see $NODE_DIR/*.log" >&2
exit 1
