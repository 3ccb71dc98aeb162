# Runs in a guest as process 1: carries out the commands that arrive on the second serial port.
#
# One line in is one shell command. Its standard output goes back on the port, its standard error to the
# console, and a line `end STATUS` follows. The checks print `ok NAME` or `not ok NAME: why`.
export PATH=/usr/bin:/bin:/sbin HOME=/tmp
ip link set lo up
exec 3<>/dev/ttyS1
stty -F /dev/ttyS1 raw -echo
cd /checks || exit
echo "agent ready $(uname -r) after $(cut -d' ' -f1 /proc/uptime) s" >&3
while read -r line <&3; do
    echo "agent: $line" >/dev/console
    sh -c "$line" </dev/null >&3 2>/dev/console
    echo "end $?" >&3
done
poweroff -f
