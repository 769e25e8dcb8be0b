/* Search from the file system, where browsers start no workers: their scripts run in a hidden frame of the page instead.
   Only for pages opened as files; over HTTP, the browser's own workers are used. */
(() => {
  if (location.protocol !== "file:") return;

  const load = (frame, address) =>
    new Promise((resolve, reject) => {
      const script = frame.contentDocument.createElement("script");
      script.src = address;
      script.onload = () => resolve();
      script.onerror = () => reject(new Error(`${address} could not be loaded`));
      frame.contentDocument.head.append(script);
    });

  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const absolute = new URL(address, location.href).href;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.importScripts = async (...addresses) => {
        // One after the other: later ones build upon earlier ones.
        for (const one of addresses) await load(this.frame, one);
      };
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = load(this.frame, absolute);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
})();
