#!/bin/bash
# Puts the programs of a Kubernetes API server (1.20.2) where tests/live/kubernetes_cluster.py finds them: etcd from
# Debian's package, kube-apiserver built from Debian 12's own source package, offline after the download.
# usage: build_kubernetes.sh [DIR]   default: ~/.cache/optsched/kubernetes. Does nothing where both are found.
# Takes about ten minutes on two cores, 3 GB of disk while it builds, and root for the packages it needs.
set -euo pipefail

into=$(realpath -m "${1:-$HOME/.cache/optsched/kubernetes}")
export PATH="${OPTSCHED_KUBERNETES_BIN:+$OPTSCHED_KUBERNETES_BIN:}$into:$PATH"
have() { command -v "$1" >/dev/null; }
if have etcd && have kube-apiserver; then exit 0; fi

sources=/etc/apt/sources.list.d/debian.sources
if ! grep -q '^VERSION_CODENAME=bookworm' /etc/os-release || [ ! -e $sources ]; then
  echo "the API server can be built on Debian 12 only; elsewhere put kube-apiserver and etcd of a Kubernetes release" \
    "into $into" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then echo "run $0 as root: it installs Debian packages" >&2; exit 1; fi

mkdir -p "$into"
build=$(mktemp -d "$into/build-XXXXXX")
trap 'rm -rf "$build"' EXIT
mkdir -p "$build/home" "$build/lists/partial"
export DEBIAN_FRONTEND=noninteractive
needed=(etcd-server)
if ! have kube-apiserver; then
  needed+=(golang-go golang-github-modern-go-reflect2-dev dpkg-dev make openssl patch rsync xz-utils)
fi
echo "apt-get install ${needed[*]}"
apt-get update -qq
apt-get install -qq -y --no-install-recommends "${needed[@]}" >"$build/apt.log" 2>&1 || { tail "$build/apt.log" >&2; exit 1; }
if have kube-apiserver; then exit 0; fi

echo "fetching the source package kubernetes"
sed 's/^Types: deb$/Types: deb-src/' $sources >"$build/src.sources"
apt=(-qq -o "Dir::Etc::sourcelist=$build/src.sources" -o Dir::Etc::sourceparts=/dev/null
  -o "Dir::State::lists=$build/lists" -o APT::Sandbox::User=root)
cd "$build"
apt-get "${apt[@]}" update
apt-get "${apt[@]}" source --download-only kubernetes
tar xzf kubernetes_*.orig.tar.gz
cd kubernetes-1.20.2
tar xJf ../kubernetes_*.debian.tar.xz
while read -r name; do
  case $name in '' | \#*) ;; *) patch -s -p1 <"debian/patches/$name" ;; esac
done <debian/patches/series

# The vendored reflect2 1.0.1 crashes when built with Go 1.18 or later; Debian's package is 1.0.2.
vendored=vendor/github.com/modern-go/reflect2
rm -f $vendored/*.go $vendored/*.s
cp /usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} $vendored/

echo "building kube-apiserver; the log is $build/build.log"
mkdir -p .go/src/k8s.io
ln -sfn ../../.. .go/src/k8s.io/kubernetes
export GOPATH=$PWD/.go HOME=$build/home CGO_ENABLED=0 GOPROXY=off GOFLAGS=-mod=vendor
export KUBE_GIT_COMMIT=faecb196815e248d3ecfb03c680a4507229c2a56 KUBE_GIT_VERSION=v1.20.2 KUBE_GIT_MAJOR=1 \
  KUBE_GIT_MINOR=20 KUBE_GIT_TREE_STATE=archive SOURCE_DATE_EPOCH=1610000000
make WHAT=cmd/kube-apiserver >"$build/build.log" 2>&1 || { tail -n 30 "$build/build.log" >&2; exit 1; }
install -m 755 _output/bin/kube-apiserver "$into/kube-apiserver.new"
mv "$into/kube-apiserver.new" "$into/kube-apiserver"
echo "$into/kube-apiserver"
