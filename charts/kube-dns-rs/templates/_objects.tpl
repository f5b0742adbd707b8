{{- /* The objects of the shape, and the roles that the values ask for: a list under "items". */ -}}
{{- define "objects" -}}
{{- $parts := list (printf "shapes/%s.yaml" .Values.shape) -}}
{{- if .Values.rbac.pods }}{{ $parts = append $parts "shapes/rbac-pods.yaml" }}{{ end -}}
items:
{{- range $part := $parts }}
{{- /* Without quotes, YAML would read the address fd00:: as a mapping. */}}
{{- $text := $.Files.Get $part | replace "clusterIP: 10.96.0.10" (printf "clusterIP: %q" $.Values.clusterIP) }}
{{- $text = $text | replace "cluster.local" $.Values.clusterDomain | replace "10.96.0.10" $.Values.clusterIP }}
{{- range splitList "\n---\n" $text }}
- {{ . | indent 2 | trim }}
{{- end }}
{{- end }}
{{- with .Values.rbac.extraRules }}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: kube-dns-extra}
  rules:
  {{- toYaml . | nindent 2 }}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRoleBinding
  metadata: {name: kube-dns-extra}
  subjects:
  - {kind: ServiceAccount, name: kube-dns, namespace: kube-system}
  roleRef: {kind: ClusterRole, name: kube-dns-extra, apiGroup: rbac.authorization.k8s.io}
{{- end }}
{{- end -}}

{{- /* Gives "yes" for the Deployment or DaemonSet of the kube-dns pods, and nothing for other objects. */ -}}
{{- define "is.kube-dns" -}}
{{- $name := printf "%s/%s" .kind .metadata.name -}}
{{- if has $name (list "Deployment/kube-dns" "Deployment/kube-dns-trial" "DaemonSet/kube-dns") }}yes{{ end -}}
{{- end -}}

{{- /* Changes the template of the kube-dns pods, .pod, as the values ask. */ -}}
{{- define "edit.pod" -}}
{{- $values := .root.Values -}}
{{- with $values.image.pullSecrets }}
{{- $secrets := list }}{{ range . }}{{ $secrets = append $secrets (dict "name" .) }}{{ end }}
{{- $_ := set $.pod.spec "imagePullSecrets" $secrets }}
{{- end }}
{{- $_ := set .pod.metadata "annotations" (merge dict $values.podAnnotations (.pod.metadata.annotations | default dict)) }}
{{- $_ := set .pod.spec "nodeSelector" (merge dict $values.nodeSelector .pod.spec.nodeSelector) }}
{{- $_ := set .pod.spec "tolerations" (concat .pod.spec.tolerations $values.tolerations) }}
{{- with $values.affinity }}{{ $_ := set $.pod.spec "affinity" . }}{{ end }}
{{- with $values.priorityClassName }}{{ $_ := set $.pod.spec "priorityClassName" . }}{{ end }}
{{- with $values.extraVolumes }}
{{- $_ := set $.pod.spec "volumes" (concat ($.pod.spec.volumes | default list) .) }}
{{- end }}
{{- range .pod.spec.containers }}
{{- include "edit.container" (dict "root" $.root "container" .) }}
{{- end }}
{{- end -}}

{{- /* Changes one container of the pod, .container. */ -}}
{{- define "edit.container" -}}
{{- $values := get .root.Values .container.name -}}
{{- $image := splitList ":" (base .container.image) | first -}}
{{- $tag := .root.Values.image.tag | default .root.Chart.AppVersion -}}
{{- $_ := set .container "image" (printf "%s/%s:%s" .root.Values.image.repository $image $tag) }}
{{- with .root.Values.image.pullPolicy }}{{ $_ := set $.container "imagePullPolicy" . }}{{ end }}
{{- with $values.resources }}{{ $_ := set $.container "resources" . }}{{ end }}
{{- $args := list }}
{{- range .container.args }}
{{- if eq . "--" }}{{ $args = concat $args $values.nannyArgs }}{{ end }}
{{- $args = append $args . }}
{{- end }}
{{- $args = concat $args $values.args }}
{{- $_ := set .container "args" $args }}
{{- if eq .container.name "kubedns" }}{{ include "edit.nodeName" (dict "container" .container "args" $args) }}{{ end }}
{{- with $values.extraVolumeMounts }}
{{- $_ := set $.container "volumeMounts" (concat ($.container.volumeMounts | default list) .) }}
{{- end }}
{{- end -}}

{{- /* Adds NODE_NAME to kubedns, .container, if a flag among the arguments .args needs it: otherwise, kubedns does not start. */ -}}
{{- define "edit.nodeName" -}}
{{- $zone := include "flag" (dict "flag" "prefer-zone" "args" .args) -}}
{{- $pods := include "flag" (dict "flag" "pods" "args" .args) -}}
{{- $present := false -}}
{{- range .container.env }}{{ if eq .name "NODE_NAME" }}{{ $present = true }}{{ end }}{{ end -}}
{{- if and (or (has $zone (list "auto" "hints")) (eq $pods "node")) (not $present) -}}
{{- $field := dict "fieldRef" (dict "fieldPath" "spec.nodeName") -}}
{{- $_ := set .container "env" (append (.container.env | default list) (dict "name" "NODE_NAME" "valueFrom" $field)) -}}
{{- end -}}
{{- end -}}

{{- /* Changes the template of the pods of NodeLocal DNSCache, .pod. */ -}}
{{- define "edit.nodeLocal" -}}
{{- $values := .root.Values -}}
{{- $container := first .pod.spec.containers -}}
{{- with $values.image.pullSecrets }}
{{- $secrets := list }}{{ range . }}{{ $secrets = append $secrets (dict "name" .) }}{{ end }}
{{- $_ := set $.pod.spec "imagePullSecrets" $secrets }}
{{- end }}
{{- with $values.image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end }}
{{- with $values.nodeLocal.image }}{{ $_ := set $container "image" . }}{{ end }}
{{- with $values.nodeLocal.resources }}{{ $_ := set $container "resources" . }}{{ end }}
{{- $_ := set $container "args" (concat $container.args $values.nodeLocal.args) }}
{{- end -}}
