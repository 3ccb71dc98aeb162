# netem_seen.sh: both directions did lose packets
. /checks/lib.sh
for device in ifb0 ifb1; do
    dropped=$(tc -s qdisc show dev $device | sed -n 's/.*(dropped \([0-9]*\),.*/\1/p' | head -n 1)
    if [ "${dropped:-0}" -ge 10 ]; then ok "netem_seen_$device"; else not_ok "netem_seen_$device" "dropped ${dropped:-nothing}"; fi
    echo "# $device dropped $dropped packets"
done
